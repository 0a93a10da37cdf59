"""Vectors and factors of clipped distances against formulas in loops, golden numbers, memory."""

import math
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from nmt.encodings.attention.shaw_absolute import ShawAbsolute
from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.vectors import by_row
from nmt.encodings.vectors.by_row import query_products, row_sums
from nmt.encodings.vectors.huang import Huang
from nmt.encodings.vectors.relative import Relative
from nmt.encodings.vectors.relative_sinusoidal import RelativeSinusoidal
from tests.encodings.attending import dims, equals_loops, pass_over, qkv


def context(n: int) -> Context:
    at = torch.arange(n)[None]
    return Context("encoder", at, at, at)


def attend(e: Relative, q: Tensor, k: Tensor, v: Tensor, layer: int, c: Context) -> Tensor:
    p = (e.scores(q @ k.mT, q, k, layer, c) * q.shape[-1] ** -0.5).softmax(-1)
    return e.outputs(p @ v, q, p, layer, c)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(
    "options",
    [
        *({}, {"value": False}, {"key": False}, {"per_head": True}, {"tied": True}),
        {"tau": None, "longest": 12},
    ],
)
def test_equals_the_formula_in_two_loops(options: dict[str, Any], site: str) -> None:
    """Eq. 3-4 of Shaw et al. 2018."""
    torch.manual_seed(0)
    e = Relative(dims(site, heads=3), **({"tau": 2} | options)).double()
    values = e.key_table if e.tied else e.value_table

    def row(table: Tensor | None, layer: int, h: int, i: int, j: int) -> Tensor:
        if table is None:
            return torch.zeros(4, dtype=torch.float64)
        x = max(-e.tau, min(e.tau, j - i)) + e.tau
        return table[layer, h if table.shape[1] > 1 else 0, x]

    equals_loops(
        e, lambda q, k, *place: q @ (k + row(e.key_table, *place)) / 2, partial(row, values)
    )


def test_unlimited_holds_every_distance_up_to_longest() -> None:
    e = Relative(Dims("encoder", 1, 2, 8, 4), None, longest=9)
    assert e.max_length(False) == 9 and [p.shape[2] for p in e.parameters()] == [17, 17]
    q = torch.randn(1, 2, 10, 4)
    with pytest.raises(ValueError, match="distance 9: longest=9 has vectors to 8"):
        attend(e, q, q, q, 0, context(10))
    reached = attend(e, q[:, :, :9], q[:, :, :9], q[:, :, :9], 0, context(9))
    reached.square().sum().backward()
    assert e.key_table is not None and e.key_table.grad is not None
    assert e.key_table.grad.abs().sum(-1).min() > 0  # every row is some distance's


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_shaw_absolute_equals_the_formula_in_two_loops(site: str) -> None:
    torch.manual_seed(0)
    e = ShawAbsolute(dims(site), 11).double()

    def row(table: Tensor | None, layer: int, h: int, i: int, j: int) -> Tensor:
        assert table is not None
        return table[layer, 0, 11 * i + j]

    equals_loops(
        e, lambda q, k, *place: q @ (k + row(e.key_table, *place)) / 2, partial(row, e.value_table)
    )


METHODS = [1, 2, 3, 4]
FARTHEST = 2


def huang_of(method: Any, site: str = "encoder", per_head: bool = True) -> Huang:
    torch.manual_seed(0)
    e = Huang(dims(site), method, FARTHEST, per_head).double()
    with torch.no_grad():
        e.a.normal_(1, 0.5)
    return e


def formula(method: Any, q: Tensor, k: Tensor, a: Tensor, x: int) -> Tensor:
    """The logit of one pair; a: [row, width] of its head and layer."""
    x = max(-FARTHEST, min(FARTHEST, x))
    if method == 1:
        return (q @ k) * a[abs(x), 0] / 2
    if method == 2:
        return (q @ k) * a[x + FARTHEST, 0] / 2
    if method == 3:
        return torch.stack([q[d] * k[d] * a[x + FARTHEST, d] for d in range(4)]).sum() / 2
    return (q @ k + q @ a[x + FARTHEST] + k @ a[x + FARTHEST]) / 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("site, per_head", [("encoder", True), ("decoder", False)])
def test_huang_equals_the_formula_in_two_loops(method: Any, site: str, per_head: bool) -> None:
    e = huang_of(method, site, per_head)

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        return formula(method, q, k, e.a[layer, h if per_head else 0], j - i)

    equals_loops(e, logit)


def test_method_3_in_parts_is_method_3(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers and gradients, without and with recomputation for the backward pass."""
    e = huang_of(3)
    q, k, _ = qkv(9, e.dims)
    results = []
    for chunk in (2**24, 2 * 2 * 9 * 4 * 2):  # all queries at once; two at a time
        monkeypatch.setattr(by_row, "CHUNK", chunk)
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


@pytest.mark.parametrize("reference, denominator", [("paper", 256), ("returnn", 31)])
def test_sinusoidal_vectors_in_loops(reference: Any, denominator: int) -> None:
    """key - query = x: sines and cosines of -x in turns (paper), or of x + 16 in halves."""
    e = RelativeSinusoidal(Dims("encoder", 1, 8, 512, 64), 16, reference=reference)
    assert not list(e.parameters()) and e.key_table is not None
    for x, b in product(range(-16, 17), range(32)):
        w = 10000 ** (-b / denominator)
        angle = -x * w if reference == "paper" else (x + 16) * w
        sine, cosine = (2 * b, 2 * b + 1) if reference == "paper" else (b, b + 32)
        row = e.key_table[0, 0, x + 16]
        assert abs(row[sine] - math.sin(angle)) < 1e-5 and abs(row[cosine] - math.cos(angle)) < 1e-5


@pytest.mark.parametrize("heads, batch", [(1, 1), (2, 3)])
def test_products_and_sums_of_rows_have_the_gradients_of_plain_ones(heads: int, batch: int) -> None:
    torch.manual_seed(2)
    q, p = (torch.randn(3, 2, 4, n, dtype=torch.float64, requires_grad=True) for n in (7, 5))
    rows = torch.randn(heads, 6, 7, dtype=torch.float64, requires_grad=True)
    index = torch.randint(6, (batch, 4, 5))
    vectors = rows.expand(2, -1, -1)[:, index].transpose(0, 1)  # [batch, heads, query, key, dim]
    for found, plain in (
        (query_products(q, rows, index), torch.einsum("bhqd,bhqkd->bhqk", q, vectors)),
        (row_sums(p, rows, index), torch.einsum("bhqk,bhqkd->bhqd", p, vectors)),
    ):
        torch.testing.assert_close(found, plain)
        learned = [q if found.shape[-1] == 5 else p, rows]
        one, other = (
            torch.autograd.grad(t.sin().sum(), learned, retain_graph=True) for t in (found, plain)
        )
        torch.testing.assert_close(one, other)


def test_long_text_needs_nothing_larger_than_the_scores() -> None:
    n, e = 400, Relative(Dims("encoder", 1, 1, 64, 64))
    q, k, v = (torch.randn(1, 1, n, 64, requires_grad=True) for _ in range(3))
    with profile(profile_memory=True) as profiled:
        attend(e, q, k, v, 0, context(n)).sum().backward()
    largest = max(event.self_cpu_memory_usage for event in profiled.events() or ())
    assert n * n * 4 <= largest <= 3 * n * n * 4  # vectors for each pair would be 64 times
