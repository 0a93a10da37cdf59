"""Forget gates against the formula in loops."""

import torch
from torch import Tensor

from nmt.encodings.biases.fox import Fox
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
