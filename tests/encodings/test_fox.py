"""Forget gates against the formula in loops, and what is remembered of each key."""

import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.fox import Fox
from nmt.encodings.passes import computed
from tests.encodings.attending import attend, dims, pass_over, qkv

SITES = ("encoder", "decoder", "cross")


def made(site: str) -> Fox:
    torch.manual_seed(1)
    e = Fox(dims(site)).double()
    e.name = "fox"
    torch.nn.init.normal_(e.weight)
    torch.nn.init.normal_(e.gate_bias)
    return e


def gates(e: Fox, x: Tensor, layer: int) -> Tensor:
    """log f [batch, heads, key]."""
    made = torch.einsum("bnd,hd->bhn", x, e.weight[layer]) + e.gate_bias[layer][:, None]
    return -torch.log1p(torch.exp(-made))


def test_equals_the_formula_in_loops() -> None:
    for site in SITES:
        e, (q, k, v) = made(site), qkv(7, dims())
        x = q.transpose(1, 2).flatten(2)
        log_f, scores = gates(e, x, 1), torch.einsum("bhqd,bhkd->bhqk", q, k) / 4**0.5
        for i in range(7):
            for j in range(7):
                between = (
                    range(j + 1, 7) if site == "cross" else range(min(i, j) + 1, max(i, j) + 1)
                )
                for t in between:
                    scores[:, :, i, j] += log_f[:, :, t]
        found, _, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
        torch.testing.assert_close(found, scores)


def test_cable_is_the_same_with_products_as_they_are() -> None:
    """Sums of -softplus as in the code of its authors; only the sign of w is another."""
    e, (q, k, v) = Fox(dims("decoder"), scaled=False).double(), qkv(7, dims())
    x = q.transpose(1, 2).flatten(2)
    found, _, _ = attend(e, q, k, v, pass_over(7, "decoder"), layer=1)
    for head in range(2):
        minus = [-torch.log1p(torch.exp(-(x[:, t] @ e.weight[1, head]))) for t in range(7)]
        for i in range(7):
            for j in range(i + 1):
                product = (q[:, head, i] * k[:, head, j]).sum(-1)
                added = sum(minus[j + 1 : i + 1], torch.zeros(2, dtype=q.dtype))
                torch.testing.assert_close(found[:, head, i, j], product + added)


def test_gates_of_padding_are_not_counted() -> None:
    e, (q, k, v) = made("cross"), qkv(7, dims())
    padded = pass_over(7, "cross")
    padded.allowed = (torch.arange(7) < torch.tensor([7, 4])[:, None])[:, None, None]
    found, _, _ = attend(e, q, k, v, padded)
    alone, _, _ = attend(e, q[1:, :, :4], k[1:, :, :4], v[1:, :, :4], pass_over(4, "cross", 1))
    torch.testing.assert_close(found[1:, :, :4, :4], alone)


class Kept:
    """A memory of keys as a decoder has it."""

    def __init__(self) -> None:
        self.of: dict[str, Tensor] = {}

    def remember(self, name: str, new: Tensor) -> Tensor:
        self.of[name] = torch.cat([self.of[name], new], 2) if name in self.of else new
        return self.of[name]


def test_keys_are_remembered_by_layer_from_step_to_step() -> None:
    e, x, key_caches = made("decoder"), torch.randn(2, 5, 8, dtype=torch.float64), [Kept(), Kept()]
    whole = pass_over(5, "decoder")
    for layer in range(2):
        e.project(lambda *_: (x, x, x), x, x, x, layer, whole)
    for a, b in ((0, 1), (1, 4), (4, 5)):
        at = torch.arange(b)[None]
        context = Context("decoder", at[:, a:], at, at[:, a:], rows=2, key_caches=key_caches)
        for layer in range(2):
            e.project(lambda *_: (x, x, x), x[:, a:b], x[:, a:b], x[:, a:b], layer, context)
            found = e.bias(layer, context)
            torch.testing.assert_close(found, e.bias(layer, whole)[:, :, a:b, :b])
    assert not context.once("nothing", lambda: 0) and "remembered" in computed(context)
