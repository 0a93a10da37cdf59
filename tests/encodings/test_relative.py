"""Shaw's encoding and its relatives against formulas in loops, golden numbers, and limits."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.encodings.attention.shaw_absolute import ShawAbsolute
from nmt.encodings.base import Dims
from nmt.encodings.context import Context, Positions
from nmt.encodings.limits import max_length
from nmt.encodings.passes import with_positions
from nmt.encodings.vectors.relative import Relative
from nmt.encodings.vectors.relative_sinusoidal import RelativeSinusoidal
from tests.encodings.attending import attend as attending
from tests.encodings.attending import dims, equals_loops, qkv


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
    assert max_length(e, False) == 9 and [p.shape[2] for p in e.parameters()] == [17, 17]
    q = torch.randn(1, 2, 10, 4)
    with pytest.raises(ValueError, match="distance 9: longest=9 has vectors to 8"):
        attend(e, q, q, q, 0, context(10))
    reached = attend(e, q[:, :, :9], q[:, :, :9], q[:, :, :9], 0, context(9))
    reached.square().sum().backward()
    assert e.key_table is not None and e.key_table.grad is not None
    assert e.key_table.grad.abs().sum(-1).min() > 0  # every row is some distance's


class Countdown(Positions):
    def assign(self, index: Tensor, context: Context) -> Tensor:
        return 50 - index


def test_a_decoder_that_counts_down_sees_what_lies_ahead() -> None:
    """Its past has greater positions: both halves of the table stay in use."""
    n, e = 6, Relative(dims("decoder"), tau=2).double().requires_grad_(False)
    q, k, _ = qkv(n, dims("decoder"))
    at = torch.arange(n)[None]
    plain = Context("decoder", at, at, at, rows=2)
    for c, sign in ((plain, 1), (with_positions(plain, Countdown()), -1)):
        added = e.scores(torch.zeros(2, 2, n, n).to(q), q, k, 0, c)
        assert e.key_table is not None
        for i in range(n):
            for j in range(i + 1):
                row = e.key_table[0, 0, min(max(sign * (j - i), -2), 2) + 2]
                assert torch.allclose(added[:, :, i, j], q[:, :, i] @ row, atol=1e-5)


class Largest(TorchDispatchMode):
    """Notes how many elements the memory of the largest result has."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in tree_leaves(found):
            if isinstance(t, Tensor):
                held = t.untyped_storage().nbytes() // t.element_size()
                self.elements = max(self.elements, held)
        return found


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_long_text_needs_nothing_larger_than_the_scores(site: str) -> None:
    n, sizes = 1200, Dims(site, 1, 1, 64, 64)
    e = Relative(sizes)
    q, k, v = (torch.randn(1, 1, n, 64, requires_grad=True) for _ in range(3))
    at = torch.arange(n)[None]
    with Largest() as largest:
        attend(e, q, k, v, 0, Context(site, at, at, at)).sum().backward()
    assert q.grad is not None and largest.elements == n * n  # [n, n, head_dim] would be 64 times


def test_tables_start_glorot_uniform() -> None:
    """Over [2 tau + 1, head_dim], as in RETURNN: bound sqrt(6 / (33 + 64))."""
    table = Relative(Dims("encoder", 6, 8, 512, 64)).key_table
    assert table is not None
    assert 0.2480 < float(table.detach().abs().max()) <= 0.2488


@pytest.mark.parametrize(
    "options, said",
    [
        ({"key": False, "value": False}, "key=false and value=false"),
        ({"tied": True, "value": False}, "tied=true: needs key=true and value=true"),
        ({"tau": None}, "tau=null: needs longest"),
        ({"tau": 4, "longest": 9}, "longest=9: only with tau=null; tau=4 encodes any length"),
    ],
)
def test_refuses_what_means_nothing(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Relative(Dims("encoder", 1, 1, 4, 4), **options)


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


def test_shaw_absolute_reads_each_sentence_at_its_own_positions() -> None:
    e = ShawAbsolute(dims(), 20).double()
    q, k, v = qkv(5, e.dims)
    at = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 9, 12, 19]])
    both = attending(e, q, k, v, Context("encoder", at, at, at, rows=2))[2]
    for row in range(2):
        one = at[row : row + 1]
        c = Context("encoder", one, one, one, rows=1)
        alone = attending(e, q[row : row + 1], k[row : row + 1], v[row : row + 1], c)[2]
        assert torch.allclose(both[row], alone[0], atol=1e-12)


def test_shaw_absolute_refuses_what_means_nothing() -> None:
    with pytest.raises(ValueError, match="key=false and value=false"):
        ShawAbsolute(dims(), key=False, value=False)


def vectors(reference: Any, tau: int = 16) -> Tensor:
    e = RelativeSinusoidal(Dims("encoder", 1, 8, 512, 64), tau, reference=reference)
    assert not list(e.parameters()) and e.key_table is not None
    return e.key_table[0, 0]  # rows: key - query = -tau .. tau


def test_sinusoidal_vectors_of_the_paper() -> None:
    rows = vectors("paper")
    golden = {  # query - key -> first components
        1: [0.841471, 0.540302, 0.821856, 0.569695],
        -1: [-0.841471, 0.540302, -0.821856, 0.569695],
        0: [0, 1, 0, 1],
        16: [-0.287903, -0.957659, 0.269985, -0.962865],
    }
    for distance, numbers in golden.items():
        assert torch.allclose(
            rows[16 - distance, :4], torch.tensor(numbers, dtype=torch.float32), atol=1e-6
        )
    assert torch.allclose(rows[:, 0::2], -rows.flip(0)[:, 0::2])  # sines
    assert torch.allclose(rows[:, 1::2], rows.flip(0)[:, 1::2])  # cosines


def test_sinusoidal_vectors_of_returnn() -> None:
    rows = vectors("returnn")
    assert torch.allclose(rows[16, :2], torch.tensor([-0.287903, -0.627974]), atol=1e-6)
    assert torch.allclose(rows[16, 32:34], torch.tensor([-0.957659, 0.778234]), atol=1e-6)
    assert rows[0, :2].eq(0).all() and rows[0, 32:34].eq(1).all()


def test_sinusoidal_vectors_move_with_the_module() -> None:
    e = RelativeSinusoidal(Dims("encoder", 1, 2, 8, 4), 2).double()
    assert e.key_table is not None and e.key_table.dtype == torch.float64
