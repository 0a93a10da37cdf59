"""iRPE, composite attention and DA-Transformer against formulas in loops."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.biases.da_transformer import DaTransformer, rescaled
from nmt.encodings.vectors.composite import Composite
from nmt.encodings.vectors.irpe import Irpe, piecewise
from tests.encodings.attending import attend, dims, drawn, equals_loops, pass_over, qkv

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
    "options", [ALL, ALL | {"per_head": True}, {"key": "bias"}, {"key": "none", "query": "bias"}]
)
def test_irpe_equals_the_formula_in_two_loops(site: str, options: dict[str, Any]) -> None:
    sizes = (2, 4, 6)
    e = drawn(Irpe(dims(site), **{"key": "contextual"} | options, alpha=2, beta=4, gamma=6))

    def row(table: Tensor | None, layer: int, h: int, x: int) -> Tensor:
        assert table is not None
        return table[layer, h if table.shape[1] > 1 else 0, group(x, *sizes) + 4]

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        logit = q @ k / 2
        if e.key == "contextual":
            logit = logit + q @ row(e.key_table, layer, h, j - i) / 2
        if e.query == "contextual":
            logit = logit + k @ row(e.query_table, layer, h, j - i) / 2
        if e.key == "bias":
            logit = logit + row(e.key_table, layer, h, j - i)[0]
        if e.query == "bias":
            logit = logit + row(e.query_table, layer, h, j - i)[0]
        return logit

    def value(layer: int, h: int, i: int, j: int) -> Tensor:
        return row(e.value_table, layer, h, j - i)

    equals_loops(e, logit, None if e.value == "none" else value)


def test_irpe_groups() -> None:
    golden = {1: 1, 8: 8, 9: 8, 10: 9, 12: 10, 16: 11, 24: 12, 32: 13, 48: 15, 64: 16, 100: 16}
    x = torch.tensor([*golden, *(-d for d in golden), 0])
    assert piecewise(x, 8, 16, 64).tolist() == [*golden.values(), *(-g for g in golden.values()), 0]
    every = torch.arange(-300, 301)
    assert piecewise(every, 8, 16, 64).tolist() == [group(d, 8, 16, 64) for d in every.tolist()]
    assert piecewise(every.double() + 0.25, 8, 16, 64).diff().min() >= 0  # halves grow as well
    assert piecewise(torch.tensor([0.4, 0.6, -1.6]), 8, 16, 64).tolist() == [0, 1, -2]


def test_irpe_starts_from_nothing() -> None:
    e = Irpe(dims(), **ALL).double()
    q, k, v = qkv(9, e.dims)
    logits, p, out = attend(e, q, k, v, pass_over(9))
    assert torch.equal(logits, q @ k.mT / 2) and torch.equal(out, p @ v)


@sites
@pytest.mark.parametrize("parts", [(1, 1, 1), (0, 0, 1), (1, 0, 0), (0, 1, 0)])
def test_composite_equals_the_formula_in_two_loops(site: str, parts: tuple[int, ...]) -> None:
    fixed, query, key = map(bool, parts)
    e = drawn(Composite(dims(site), 2, fixed, query, key))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        x, back = (max(-2, min(2, d)) + 2 for d in (j - i, i - j))
        logit = q @ k / 2
        logit = logit + e.f[layer, h, x, 0] if fixed else logit
        logit = logit + q @ e.c_q[layer, 0, x] / 2 if query else logit
        return logit + k @ e.c_k[layer, 0, back] / 2 if key else logit

    equals_loops(e, logit)


def test_fixed_kernels_start_at_zero() -> None:
    e = Composite(dims())
    assert e.f is not None and e.c_q is not None
    assert e.f.eq(0).all() and e.c_q.abs().max() > 0


@sites
def test_da_transformer_equals_the_formula_in_two_loops(site: str) -> None:
    e = drawn(DaTransformer(dims(site)))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        v, w = e.v[layer, h].item(), e.w[layer, h].item()
        return (q @ k).clamp(min=0) * (1 + math.exp(v)) / (1 + math.exp(v - w * abs(i - j))) / 2

    equals_loops(e, logit)


def test_da_transformer_stays_finite_where_the_formula_overflows() -> None:
    v, w = torch.tensor(1.0, requires_grad=True), torch.tensor(-9.0, requires_grad=True)
    r = rescaled(torch.tensor([0.0, 10, 1000]), v, w)
    r.sum().backward()
    assert r[0] == 1 and r[2] == 0 and v.grad is not None and w.grad is not None
    assert v.grad.isfinite() and w.grad.isfinite()


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
