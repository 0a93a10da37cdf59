"""Shaw's encoding against the formula in two loops, golden numbers, and its limits."""

from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Dims, by_query, sum_by_row
from nmt.encodings.context import Context
from nmt.encodings.relative import Relative
from nmt.encodings.relative_sinusoidal import RelativeSinusoidal
from nmt.encodings.sinusoids import sinusoids


def context(n: int, queries: int | None = None) -> Context:
    at = torch.arange(n)[None]
    return Context("encoder", at if queries is None else at[:, -queries:], at, at)


def attend(e: Relative, q: Tensor, k: Tensor, v: Tensor, layer: int, c: Context) -> Tensor:
    s = e.scores(q @ k.mT, q, k, layer, c) * q.shape[-1] ** -0.5
    p = s.softmax(-1)
    extra = e.values(p, layer, c)
    return p @ v if extra is None else p @ v + extra


def loops(e: Relative, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
    """Eq. 3-4 of Shaw et al. 2018 for each head, query and key, in float64."""
    batch, heads, n, width = q.shape
    out = torch.zeros_like(v)
    for b, h, i in product(range(batch), range(heads), range(n)):
        logits = torch.zeros(n, dtype=torch.float64)
        rows = [max(-e.tau, min(e.tau, j - i)) + e.tau for j in range(n)]
        kt, vt = (
            None if t is None else t[layer, h if t.shape[1] > 1 else 0]
            for t in (e.key_table, e.value_table)
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
    e = Relative(Dims("encoder", 2, 3, 12, 4), None, 2, bool(key), bool(value), bool(per_head))
    e = e.double()
    q, k, v = (torch.randn(2, 3, 9, 4, dtype=torch.float64) for _ in range(3))
    for layer in range(2):
        got = attend(e, q, k, v, layer, context(9))
        assert torch.allclose(got, loops(e, q, k, v, layer), atol=1e-12)


def test_golden_numbers() -> None:
    """One head, n = 3, head_dim = 2, tau = 1; computed by hand from the formula."""
    e = Relative(Dims("encoder", 1, 1, 2, 2), None, 1).double()
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
    assert torch.allclose((by_query(t, index) * p).sum(-1), (t * sum_by_row(p, index, 5)).sum(-1))


def test_all_distances_beyond_tau_are_one() -> None:
    index = context(40).clipped(3)
    assert index[0, 0, 3:].eq(6).all() and index[0, 39, :37].eq(0).all()


def test_tau_zero_leaves_the_softmax_alone() -> None:
    torch.manual_seed(1)
    e = Relative(Dims("encoder", 1, 2, 8, 4), None, 0)
    q, k = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    plain = (q @ k.mT).softmax(-1)
    assert torch.allclose(e.scores(q @ k.mT, q, k, 0, context(6)).softmax(-1), plain, atol=1e-6)


def test_tables_start_glorot_uniform() -> None:
    """Over [2 tau + 1, head_dim], as in RETURNN: bound sqrt(6 / (33 + 64))."""
    table = Relative(Dims("encoder", 6, 8, 512, 64)).key_table
    assert table is not None
    assert 0.2480 < float(table.detach().abs().max()) <= 0.2488


def test_gradients_in_float64() -> None:
    torch.manual_seed(0)
    e = Relative(Dims("encoder", 1, 1, 3, 3), None, 1).double()
    q, k, v = (torch.randn(1, 1, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda q, k, v: attend(e, q, k, v, 0, context(4)), (q, k, v))


@pytest.mark.parametrize("options", [{"tau": -1}, {"key": False, "value": False}])
def test_refuses_what_means_nothing(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"tau=-1|key=false"):
        Relative(Dims("encoder", 1, 1, 4, 4), **options)  # type: ignore[arg-type]


def vectors(reference: str, tau: int = 16) -> Tensor:
    e = RelativeSinusoidal(Dims("encoder", 1, 8, 512, 64), None, tau, reference=reference)
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
    e = RelativeSinusoidal(Dims("encoder", 1, 2, 8, 4), None, 2).double()
    assert e.key_table is not None and e.key_table.dtype == torch.float64


def test_sign_of_sinusoidal_distances_is_a_gauge() -> None:
    """Reflecting all sines turns g(x) into g(-x), so training cannot tell the sign."""
    x = torch.arange(-5, 6)
    reflection = torch.tensor([-1.0, 1.0]).repeat(4)
    q = torch.randn(8, generator=torch.Generator().manual_seed(0))
    a = sinusoids(x, 8) @ q
    b = sinusoids(-x, 8) @ (q * reflection)
    assert torch.allclose(a, b, atol=1e-5)
