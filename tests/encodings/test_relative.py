"""Shaw's encoding and its relatives against formulas in loops, golden numbers, and limits."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.encodings.base import Dims
from nmt.encodings.by_row import gathered, sum_by_row
from nmt.encodings.context import Context, Positions
from nmt.encodings.limits import max_length
from nmt.encodings.passes import with_positions
from nmt.encodings.relative import Relative
from nmt.encodings.relative_sinusoidal import RelativeSinusoidal
from nmt.encodings.shaw_absolute import ShawAbsolute
from nmt.encodings.sinusoids import sinusoids
from tests.encodings.attending import attend as attending
from tests.encodings.attending import dims, pass_over, qkv


def context(n: int, queries: int | None = None) -> Context:
    at = torch.arange(n)[None]
    return Context("encoder", at if queries is None else at[:, -queries:], at, at)


def attend(e: Relative, q: Tensor, k: Tensor, v: Tensor, layer: int, c: Context) -> Tensor:
    p = (e.scores(q @ k.mT, q, k, layer, c) * q.shape[-1] ** -0.5).softmax(-1)
    return e.outputs(p @ v, q, p, layer, c)


def loops(e: Relative, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
    """Eq. 3-4 of Shaw et al. 2018 for each head, query and key, in float64."""
    batch, heads, n, width = q.shape
    out = torch.zeros_like(v)
    for b, h, i in product(range(batch), range(heads), range(n)):
        logits = torch.zeros(n, dtype=torch.float64)
        rows = [max(-e.tau, min(e.tau, j - i)) + e.tau for j in range(n)]
        kt, vt = (
            None if t is None else t[layer, h if t.shape[1] > 1 else 0]
            for t in (e.key_table, e.key_table if e.tied else e.value_table)
        )
        for j in range(n):
            key = k[b, h, j] if kt is None else k[b, h, j] + kt[rows[j]]
            logits[j] = q[b, h, i] @ key / width**0.5
        p = logits.softmax(0)
        for j in range(n):
            out[b, h, i] += p[j] * (v[b, h, j] if vt is None else v[b, h, j] + vt[rows[j]])
    return out


@pytest.mark.parametrize("key, value, per_head", [(1, 1, 0), (1, 0, 0), (0, 1, 0), (1, 1, 1)])
def test_equals_the_formula_in_two_loops(key: int, value: int, per_head: int) -> None:
    torch.manual_seed(0)
    e = Relative(Dims("encoder", 2, 3, 12, 4), 2, bool(key), bool(value), bool(per_head))
    e = e.double()
    q, k, v = (torch.randn(2, 3, 9, 4, dtype=torch.float64) for _ in range(3))
    for layer in range(2):
        got = attend(e, q, k, v, layer, context(9))
        assert torch.allclose(got, loops(e, q, k, v, layer), atol=1e-12)


@pytest.mark.parametrize("options", [{"tied": True}, {"tau": None, "longest": 12}])
def test_variants_equal_the_formula_in_two_loops(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    e = Relative(Dims("decoder", 2, 2, 8, 4), **({"tau": 2} | options)).double()
    q, k, v = (torch.randn(2, 2, 9, 4, dtype=torch.float64) for _ in range(3))
    for layer in range(2):
        got = attend(e, q, k, v, layer, context(9))
        assert torch.allclose(got, loops(e, q, k, v, layer), atol=1e-12)
        last = attend(e, q[:, :, -1:], k, v, layer, context(9, 1))  # a step of decoding
        assert torch.allclose(last, got[:, :, -1:], atol=1e-12)


def test_tied_vectors_are_one_parameter() -> None:
    e = Relative(Dims("encoder", 2, 2, 8, 4), 2, tied=True)
    assert [p.shape for p in e.parameters()] == [(2, 1, 5, 4)]
    assert len(e.state_dict()) == 1  # one tensor on disk, too


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


def test_golden_numbers() -> None:
    """One head, n = 3, head_dim = 2, tau = 1; computed by hand from the formula."""
    e = Relative(Dims("encoder", 1, 1, 2, 2), 1).double()
    with torch.no_grad():
        e.key_table = torch.nn.Parameter(torch.tensor([[[[-1.0, 0], [0, 0.5], [1, 0]]]]).double())
        e.value_table = torch.nn.Parameter(torch.tensor([[[[0.0, 1], [1, 0], [0, -1]]]]).double())
    q = torch.tensor([[[[1.0, 1], [2, 1], [3, 1]]]]).double()
    k = torch.tensor([[[[1.0, 0], [1, 1], [1, 2]]]]).double()
    v = torch.tensor([[[[0.0, 1], [1, 1], [2, 1]]]]).double()
    s = e.scores(q @ k.mT, q, k, 0, context(3)) * 2**-0.5
    golden = [[1.060660, 2.121320, 2.828427], [0, 2.474874, 4.242641], [0, 0.707107, 3.889087]]
    assert torch.allclose(s[0, 0], torch.tensor(golden).double(), atol=1e-6)
    o = attend(e, q, k, v, 0, context(3))[0, 0]
    wanted = [[1.601040, 0.102606], [1.975749, 0.168303], [2.864027, 1.058352]]
    assert torch.allclose(o, torch.tensor(wanted).double(), atol=1e-6)


def test_gather_and_sum_undo_each_other() -> None:
    index = context(7).clipped(2)
    p = torch.rand(2, 3, 7, 7)
    t = torch.rand(2, 3, 7, 5)
    assert torch.allclose((gathered(t, index) * p).sum(-1), (t * sum_by_row(p, index, 5)).sum(-1))


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


def test_all_distances_beyond_tau_are_one() -> None:
    index = context(40).clipped(3)
    assert index[0, 0, 3:].eq(6).all() and index[0, 39, :37].eq(0).all()


def test_tau_zero_leaves_the_softmax_alone() -> None:
    torch.manual_seed(1)
    e = Relative(Dims("encoder", 1, 2, 8, 4), 0)
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    plain = (q @ k.mT).softmax(-1)
    assert torch.allclose(e.scores(q @ k.mT, q, k, 0, context(6)).softmax(-1), plain, atol=1e-6)


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
    n, longest = 9, 11
    e = ShawAbsolute(dims(site), longest).double()
    q, k, v = qkv(n, e.dims)
    assert e.key_table is not None and e.value_table is not None
    for layer in range(2):
        c = pass_over(n, site)
        got = attending(e, q, k, v, c, layer)[2]
        ak, av = (t[layer, 0].view(longest, longest, 4) for t in (e.key_table, e.value_table))
        for b, h, i in product(range(2), range(2), range(n)):
            seen = i + 1 if site == "decoder" else n
            logits = [q[b, h, i] @ (k[b, h, j] + ak[i, j]) / 2 for j in range(seen)]
            p = torch.stack(logits).softmax(0)
            out = sum(p[j] * (v[b, h, j] + av[i, j]) for j in range(seen))
            assert torch.allclose(got[b, h, i], torch.as_tensor(out), atol=1e-12)


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


def test_relative_is_shaw_absolute_with_equal_vectors_along_diagonals() -> None:
    torch.manual_seed(0)
    near, pairs = Relative(dims(), 2).double(), ShawAbsolute(dims(), 9).double()
    q, k, v = qkv(9, near.dims)
    c = pass_over(9)
    with torch.no_grad():
        for mine, theirs in zip(near.parameters(), pairs.parameters(), strict=True):
            theirs.copy_(mine[:, :, c.clipped(2).flatten()])
    a, b = attending(near, q, k, v, c, 1)[2], attending(pairs, q, k, v, c, 1)[2]
    assert torch.allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("shift, wrong", [(3, 11), (-1, -1)])
def test_shaw_absolute_refuses_positions_outside_its_table(shift: int, wrong: int) -> None:
    e = ShawAbsolute(dims(), 9).double()
    assert max_length(e, False) == 9
    q, k, v = qkv(9, e.dims)
    at = torch.arange(9)[None] + shift
    with pytest.raises(ValueError, match=f"{wrong}.* are not all among the 9 that it holds"):
        attending(e, q, k, v, Context("encoder", at, at, at))


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


def test_offset_of_sinusoidal_distances_is_a_gauge() -> None:
    """Turning the pairs by their angle of the offset turns g(x) into g(x + offset)."""
    x, offset = torch.arange(-5, 6), 7
    pairs = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = offset * 10000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    sin, cos = pairs[:, 0], pairs[:, 1]
    turned = torch.stack([sin * w.cos() + cos * w.sin(), cos * w.cos() - sin * w.sin()], -1)
    a = sinusoids(x, 8).double() @ pairs.flatten()
    b = sinusoids(x + offset, 8).double() @ turned.flatten()
    assert torch.allclose(a, b, atol=1e-5)


def test_sinusoidal_vectors_cannot_be_zero_initialised() -> None:
    e = RelativeSinusoidal(dims())
    assert e.key_table is not None
    assert not e.zero_initialise() and e.key_table.abs().max() == 1


def test_sign_of_sinusoidal_distances_is_a_gauge() -> None:
    """Reflecting all sines turns g(x) into g(-x), so training cannot tell the sign."""
    x = torch.arange(-5, 6)
    reflection = torch.tensor([-1.0, 1.0]).repeat(4)
    q = torch.randn(8, generator=torch.Generator().manual_seed(0))
    a = sinusoids(x, 8) @ q
    b = sinusoids(-x, 8) @ (q * reflection)
    assert torch.allclose(a, b, atol=1e-5)
