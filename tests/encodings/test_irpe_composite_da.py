"""iRPE, composite attention and DA-Transformer against formulas, golden numbers and relatives."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.composite import Composite
from nmt.encodings.context import Context
from nmt.encodings.da_transformer import DaTransformer, rescaled
from nmt.encodings.irpe import Irpe, piecewise
from nmt.encodings.relative import Relative
from tests.encodings.attending import attend, dims, drawn, pass_over, qkv

sites = pytest.mark.parametrize("site", ["encoder", "decoder"])
ALL: dict[str, Any] = {"query": "contextual", "key": "contextual", "value": "contextual"}


def group(x: int, alpha: int, beta: int, gamma: int) -> int:
    """iRPE's index, in plain Python."""
    if abs(x) <= alpha:
        return x
    steps = math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha)
    return int(math.copysign(min(beta, round(alpha + steps)), x))


@sites
@pytest.mark.parametrize(
    "options",
    [ALL, ALL | {"per_head": True}, {"key": "bias"}, {"key": "none", "query": "bias"}],
)
def test_irpe_equals_the_formula_in_two_loops(site: str, options: dict[str, Any]) -> None:
    sizes = (2, 4, 6)
    e = drawn(Irpe(dims(site), **{"key": "contextual"} | options, alpha=2, beta=4, gamma=6))
    q, k, v = qkv(9, e.dims)

    def row(table: Tensor | None, layer: int, h: int, x: int) -> Tensor:
        assert table is not None
        return table[layer, h if table.shape[1] > 1 else 0, group(x, *sizes) + 4]

    for layer in range(2):
        got, _, out = attend(e, q, k, v, pass_over(9, site), layer)
        for b, h, i in product(range(2), range(2), range(9)):
            seen = range(i + 1 if site == "decoder" else 9)
            logits, vectors = [], []
            for j in seen:
                logit = q[b, h, i] @ k[b, h, j] / 2
                if e.key == "contextual":
                    logit = logit + q[b, h, i] @ row(e.key_table, layer, h, j - i) / 2
                if e.query == "contextual":
                    logit = logit + k[b, h, j] @ row(e.query_table, layer, h, j - i) / 2
                if e.key == "bias":
                    logit = logit + row(e.key_table, layer, h, j - i)[0]
                if e.query == "bias":
                    logit = logit + row(e.query_table, layer, h, j - i)[0]
                logits.append(logit)
                extra = row(e.value_table, layer, h, j - i) if e.value != "none" else 0
                vectors.append(v[b, h, j] + extra)
            wanted = torch.stack(logits)
            assert torch.allclose(got[b, h, i, : len(seen)], wanted, atol=1e-12)
            assert torch.allclose(out[b, h, i], wanted.softmax(0) @ torch.stack(vectors))


def test_irpe_groups() -> None:
    golden = {1: 1, 8: 8, 9: 8, 10: 9, 12: 10, 16: 11, 24: 12, 32: 13, 48: 15, 64: 16, 100: 16}
    x = torch.tensor([*golden, *(-d for d in golden), 0])
    assert piecewise(x, 8, 16, 64).tolist() == [*golden.values(), *(-g for g in golden.values()), 0]
    every = torch.arange(-300, 301)
    assert piecewise(every, 8, 16, 64).tolist() == [group(d, 8, 16, 64) for d in every.tolist()]
    assert piecewise(every.double() + 0.25, 8, 16, 64).diff().min() >= 0  # halves grow as well
    assert piecewise(torch.tensor([0.4, 0.6, -1.6]), 8, 16, 64).tolist() == [0, 1, -2]


def test_short_sentences_make_irpe_into_shaw_without_clipping() -> None:
    e = drawn(Irpe(dims(), "none", "contextual", "contextual", 8, 10, 20))
    shaw = Relative(dims(), None, longest=9).double()
    with torch.no_grad():
        for mine, theirs in zip((e.key_table, e.value_table), shaw.parameters(), strict=True):
            theirs.copy_(mine[:, :, 2:-2])
    q, k, v = qkv(9, e.dims)
    a, b = (attend(x, q, k, v, pass_over(9), 1)[2] for x in (e, shaw))
    assert torch.allclose(a, b, atol=1e-12)


def test_irpe_starts_from_nothing() -> None:
    e = Irpe(dims(), **ALL).double()
    q, k, v = qkv(9, e.dims)
    logits, p, out = attend(e, q, k, v, pass_over(9))
    assert torch.equal(logits, q @ k.mT / 2) and torch.equal(out, p @ v)


class Bias(Encoding):
    """Made by hand: a number per head and clipped distance."""

    def __init__(self, numbers: Tensor, tau: int) -> None:
        super().__init__(dims())
        self.numbers, self.tau = numbers, tau  # [layers, heads, row]

    def bias(self, layer: int, context: Context) -> Tensor:
        n = context.keys.shape[1]
        out = torch.empty(1, 2, n, n, dtype=torch.float64)
        for h, i, j in product(range(2), range(n), range(n)):
            x = max(-self.tau, min(self.tau, j - i))
            out[0, h, i, j] = self.numbers[layer, h, x + self.tau]
        return out


def test_composite_is_a_bias_and_shaw_on_keys() -> None:
    e = drawn(Composite(dims(), 2))
    shaw = Relative(dims(), 2, value=False).double()
    assert shaw.key_table is not None
    with torch.no_grad():
        shaw.key_table.copy_(e.c_q)
    q, k, v = qkv(9, e.dims)
    for layer in range(2):
        mine = attend(e, q, k, v, pass_over(9), layer)
        theirs = attend([Bias(e.f[..., 0], 2), shaw], q, k, v, pass_over(9), layer)
        for a, b in zip(mine, theirs, strict=True):
            assert torch.allclose(a, b, atol=1e-12)


@sites
@pytest.mark.parametrize("parts", [(1, 1, 1), (0, 0, 1), (1, 0, 0), (0, 1, 0)])
def test_composite_equals_the_formula_in_two_loops(site: str, parts: tuple[int, ...]) -> None:
    fixed, query, key = map(bool, parts)
    e = drawn(Composite(dims(site), 2, fixed, query, key))
    q, k, v = qkv(9, e.dims)
    for layer in range(2):
        got, _, out = attend(e, q, k, v, pass_over(9, site), layer)
        for b, h, i in product(range(2), range(2), range(9)):
            seen = range(i + 1 if site == "decoder" else 9)
            logits = []
            for j in seen:
                x, back = (max(-2, min(2, d)) + 2 for d in (j - i, i - j))
                logit = q[b, h, i] @ k[b, h, j] / 2
                logit = logit + e.f[layer, h, x, 0] if fixed else logit
                logit = logit + q[b, h, i] @ e.c_q[layer, 0, x] / 2 if query else logit
                logits.append(logit + k[b, h, j] @ e.c_k[layer, 0, back] / 2 if key else logit)
            wanted = torch.stack(logits)
            assert torch.allclose(got[b, h, i, : len(seen)], wanted, atol=1e-12)
            assert torch.allclose(out[b, h, i], wanted.softmax(0) @ v[b, h, : len(seen)])


def test_fixed_kernels_start_at_zero() -> None:
    e = Composite(dims())
    assert e.f is not None and e.c_q is not None
    assert e.f.eq(0).all() and e.c_q.abs().max() > 0


@sites
def test_da_transformer_equals_the_formula_in_two_loops(site: str) -> None:
    e = drawn(DaTransformer(dims(site)))
    q, k, v = qkv(9, e.dims)
    for layer in range(2):
        got, _, out = attend(e, q, k, v, pass_over(9, site), layer)
        for b, h, i in product(range(2), range(2), range(9)):
            seen = range(i + 1 if site == "decoder" else 9)
            a, w = e.v[layer, h].item(), e.w[layer, h].item()
            far = [(1 + math.exp(a)) / (1 + math.exp(a - w * abs(i - j))) for j in seen]
            raw = torch.stack([(q[b, h, i] @ k[b, h, j]).clamp(min=0) for j in seen])
            logits = raw * torch.tensor(far, dtype=torch.float64) / 2
            assert torch.allclose(got[b, h, i, : len(seen)], logits, atol=1e-12)
            assert torch.allclose(out[b, h, i], logits.softmax(0) @ v[b, h, : len(seen)])


@pytest.mark.parametrize(
    "v, w, golden",
    [
        (0, -0.5, [1, 0.7551, 0.5379, 0.0360, 0]),
        (0, 0.5, [1, 1.2449, 1.4621, 1.9640, 2]),
        (1, 0.5, [1, 1.4038, 1.8591, 3.5419, 3.7183]),
    ],
)
def test_da_transformer_golden_numbers(v: float, w: float, golden: list[float]) -> None:
    got = rescaled(torch.tensor([0.0, 1, 2, 8, 50]), torch.tensor(v).float(), torch.tensor(w))
    assert torch.allclose(got, torch.tensor(golden, dtype=torch.float32), atol=6e-5)


def test_da_transformer_stays_finite_where_the_formula_overflows() -> None:
    v, w = torch.tensor(1.0, requires_grad=True), torch.tensor(-9.0, requires_grad=True)
    r = rescaled(torch.tensor([0.0, 10, 1000]), v, w)
    r.sum().backward()
    assert r[0] == 1 and r[2] == 0 and v.grad is not None and w.grad is not None
    assert v.grad.isfinite() and w.grad.isfinite()


def test_da_transformer_with_w_zero_is_relu_attention() -> None:
    e = drawn(DaTransformer(dims()))
    with torch.no_grad():
        e.w.zero_()
    q, k, v = qkv(9, e.dims)
    assert torch.allclose(attend(e, q, k, v, pass_over(9))[0], (q @ k.mT).relu() / 2, atol=1e-14)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: Irpe(dims(), alpha=0), "alpha=0, beta=16, gamma=64: must grow, from 1 on"),
        (lambda: Irpe(dims(), beta=8), "alpha=8, beta=8, gamma=64: must grow"),
        (lambda: Irpe(dims(), gamma=15), "gamma=15: must grow"),
        (lambda: Irpe(dims(), key="none"), "nothing is left to learn"),
        (lambda: Irpe(dims(), query="bias", key="bias"), "the same term twice"),
        (lambda: Composite(dims(), fixed=False, query=False), "nothing is left to learn"),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
