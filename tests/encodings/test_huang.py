"""Huang's four methods against their formulas in loops, and their memory-wise forms."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.vectors import huang
from nmt.encodings.vectors.huang import Huang
from tests.encodings.attending import attend, dims, equals_loops, pass_over, qkv

METHODS = [1, 2, 3, 4]
TAU = 2


def make(method: Any, site: str = "encoder", per_head: bool = True) -> Huang:
    torch.manual_seed(0)
    e = Huang(dims(site), method, TAU, per_head).double()
    with torch.no_grad():
        e.a.normal_(1, 0.5)
    return e


def formula(method: Any, q: Tensor, k: Tensor, a: Tensor, x: int) -> Tensor:
    """The logit of one pair; a: [row, width] of its head and layer."""
    x = max(-TAU, min(TAU, x))
    if method == 1:
        return (q @ k) * a[abs(x), 0] / 2
    if method == 2:
        return (q @ k) * a[x + TAU, 0] / 2
    if method == 3:
        return torch.stack([q[d] * k[d] * a[x + TAU, d] for d in range(4)]).sum() / 2
    return (q @ k + q @ a[x + TAU] + k @ a[x + TAU]) / 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("site, per_head", [("encoder", True), ("decoder", False)])
def test_equals_the_formula_in_two_loops(method: Any, site: str, per_head: bool) -> None:
    e = make(method, site, per_head)

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        return formula(method, q, k, e.a[layer, h if per_head else 0], j - i)

    equals_loops(e, logit)


@pytest.mark.parametrize("method", METHODS)
def test_distances_may_differ_by_sentence(method: Any) -> None:
    e = make(method)
    q, k, v = qkv(6, e.dims)
    at = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 3, 3, 8, 1, 0]])
    both = attend(e, q, k, v, Context("encoder", at, at, at, rows=2))[0]
    for row in range(2):
        one, here = at[row : row + 1], slice(row, row + 1)
        alone = attend(e, q[here], k[here], v[here], Context("encoder", one, one, one))[0]
        assert torch.allclose(both[here], alone, atol=1e-12)


def test_method_3_in_parts_is_method_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers and gradients, without and with recomputation for the backward pass."""
    e = make(3)
    q, k, _ = qkv(9, e.dims)
    results = []
    for chunk in (2**24, 2 * 2 * 9 * 4 * 2):  # all queries at once; two at a time
        monkeypatch.setattr(huang, "CHUNK", chunk)
        x, y = (t.clone().requires_grad_() for t in (q, k))
        e.zero_grad()
        s = e.scores(q @ k.mT, x, y, 1, pass_over(9))
        s.sin().sum().backward()
        with torch.no_grad():
            assert torch.equal(s, e.scores(q @ k.mT, q, k, 1, pass_over(9)))
        assert e.a.grad is not None
        results.append([s, e.a.grad.clone(), x.grad, y.grad])
    for one, parts in zip(*results, strict=True):
        assert one is not None and parts is not None
        assert torch.allclose(one, parts, atol=1e-12)


def test_method_3_never_holds_a_vector_for_every_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huang, "CHUNK", 4000)
    sizes: list[int] = []
    some = huang._chunk

    def watch(q: Tensor, k: Tensor, a: Tensor, index: Tensor) -> Tensor:
        sizes.append(q.shape[2] * k[..., 0].numel() * k.shape[-1])
        return some(q, k, a, index)

    monkeypatch.setattr(huang, "_chunk", watch)
    e = make(3)
    q, k, _ = qkv(30, e.dims)
    e.scores(q @ k.mT, q, k, 0, pass_over(30))
    assert max(sizes) <= 4000 < 2 * 2 * 30 * 30 * 4


@pytest.mark.parametrize("method", [1, 2, 3])
def test_what_multiplies_starts_as_no_encoding(method: Any) -> None:
    fresh = Huang(dims(), method).double()
    q, k, v = qkv(9, fresh.dims)
    assert torch.allclose(attend(fresh, q, k, v, pass_over(9))[0], q @ k.mT / 2, atol=1e-14)
