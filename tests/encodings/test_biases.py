"""Biases of the distance against their formulas in loops, and golden numbers."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.biases.alibi import Alibi, slopes_of
from nmt.encodings.biases.bias_table import BiasTable
from nmt.encodings.biases.disan import Disan
from nmt.encodings.biases.fire import Fire
from nmt.encodings.biases.kerple import Kerple
from nmt.encodings.biases.sandwich import Sandwich
from nmt.encodings.biases.t5 import T5, bucket
from nmt.encodings.context import Context, causal
from nmt.encodings.limits import max_length
from nmt.encodings.positions_columns import Tree
from tests.encodings.attending import attend, dims, equals_loops, pass_over, qkv, shaken

SITES = pytest.mark.parametrize("site", ["encoder", "decoder"])


Number = Callable[[int, int, int, int], Tensor]
"""`(layer, head, i, j) -> b`."""


def assert_adds(e: Encoding, b: Number) -> None:
    """Attention adds b to the scaled scores, in plain loops; buckets and waves are in float32."""
    equals_loops(e, lambda q, k, *place: q @ k / 2 + b(*place), atol=1e-6)


def bias_of(e: Encoding, n: int = 9, layer: int = 0, context: Context | None = None) -> Tensor:
    bias = e.bias(layer, context or pass_over(n, e.dims.site))
    assert bias is not None
    return bias


# --- T5


def reference_bucket(delta: int, buckets: int, far: int, both: bool) -> int:
    """One distance at a time, in Python floats."""
    start = 0
    if both:
        buckets //= 2
        start = buckets if delta > 0 else 0
        a = abs(delta)
    else:
        a = max(-delta, 0)
    exact = buckets // 2
    if a < exact:
        return start + a
    grown = int(math.log(a / exact) / math.log(far / exact) * (buckets - exact) + 1e-9)
    return start + min(buckets - 1, exact + grown)


@SITES
def test_t5_in_loops(site: str) -> None:
    e = shaken(T5(dims(site), buckets=8, max_distance=6))
    assert isinstance(e, T5)

    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        return e.weight[h, reference_bucket(j - i, 8, 6, site == "encoder")]

    assert_adds(e, b)


def test_t5_buckets() -> None:
    near = bucket(torch.arange(-20, 21), 32, 128, True).tolist()
    golden = "10 10 10 10 10 9 9 9 9 8 8 8 8 7 6 5 4 3 2 1 0 17 18 19 20 21 22 23 24 24 24 24 25"
    assert near == [int(b) for b in golden.split()] + [25, 25, 25, 26, 26, 26, 26, 26]
    far = {-32: 12, -64: 14, -127: 15, 32: 28, 64: 30, 127: 31}
    assert bucket(torch.tensor(list(far)), 32, 128, True).tolist() == list(far.values())
    past = {0: 0, 15: 15, 16: 16, 20: 17, 31: 21, 32: 21, 64: 26, 100: 30, 127: 31, 500: 31}
    assert bucket(-torch.tensor(list(past)), 32, 128, False).tolist() == list(past.values())


def test_t5_without_scaling() -> None:
    assert T5(dims()).scale is None and T5(dims(), scaled=False).scale == 1
    assert T5(dims()).zero_initialise() and not T5(dims(), scaled=False).zero_initialise()


# --- tables


@SITES
@pytest.mark.parametrize("per_layer, per_head", [(True, True), (True, False), (False, True)])
def test_tables_in_loops(site: str, per_layer: bool, per_head: bool) -> None:
    relative = shaken(BiasTable(dims(site), "relative", 3, per_layer, per_head))
    absolute = shaken(BiasTable(dims(site), "absolute", 9, per_layer, per_head))
    assert isinstance(relative, BiasTable) and isinstance(absolute, BiasTable)

    def number(e: BiasTable, layer: int, h: int, row: int) -> Tensor:
        return e.weight[layer * per_layer, h * per_head, row, 0]

    assert_adds(relative, lambda t, h, i, j: number(relative, t, h, max(-2, min(2, j - i)) + 2))
    assert_adds(absolute, lambda t, h, i, j: number(absolute, t, h, 9 * i + j))
    assert (max_length(relative, False), max_length(absolute, False)) == (None, 9)
    assert relative.relative and not absolute.relative


def test_tables_of_pairs_refuse_positions_that_are_only_distances() -> None:
    BiasTable(dims(positions=Tree()), reference="relative")
    with pytest.raises(ValueError, match="reference=absolute: needs a position for every"):
        BiasTable(dims(positions=Tree()), reference="absolute")


# --- ALiBi and KERPLE


def test_alibi_slopes() -> None:
    assert slopes_of(8) == [2.0**-h for h in range(1, 9)]
    assert slopes_of(6) == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert slopes_of(3) == [0.0625, 0.00390625, 0.25]
    assert slopes_of(12)[8:] == pytest.approx([0.707107, 0.353553, 0.176777, 0.088388], abs=1e-6)
    assert all(len(slopes_of(h)) == h for h in range(1, 34))


@SITES
def test_alibi_in_loops(site: str) -> None:
    e = Alibi(dims(site, heads=8)).double()
    assert_adds(e, lambda t, h, i, j: torch.tensor(-(2.0 ** -(h + 1)) * abs(i - j)))


def test_directional_alibi_looks_back_and_ahead() -> None:
    e = Alibi(dims(heads=4), directional=True).double()
    q, k, v = qkv(6, e.dims)
    p = attend(e, q, k, v, pass_over(6))[1]
    bias = bias_of(e, 6)[0]
    assert p[:, :2].triu(1).eq(0).all() and p[:, 2:].tril(-1).eq(0).all()
    for h, i in product(range(4), range(6)):
        slope = slopes_of(2)[h % 2]
        for j in range(i + 1) if h < 2 else range(i, 6):
            assert bias[h, i, j] == -slope * abs(i - j)
    decoder = dims("decoder", heads=4)
    assert torch.equal(bias_of(Alibi(decoder, directional=True)), bias_of(Alibi(decoder)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("directional", [False, True])
def test_alibi_of_a_model_in_few_bits_is_as_exact(directional: bool, dtype: torch.dtype) -> None:
    """No number to hide keys is too great for float16, and bfloat16 has no distance of 301."""
    exact, e = (Alibi(dims(heads=4), directional) for _ in range(2))
    for found, wanted in zip(bias_of(e.to(dtype), 302), bias_of(exact, 302), strict=True):
        assert found.isfinite().all() and torch.equal(found, wanted)


@SITES
@pytest.mark.parametrize("form", ["log", "power"])
def test_kerple_in_loops(site: str, form: Any) -> None:
    e = shaken(Kerple(dims(site), form=form))
    assert isinstance(e, Kerple)
    a = (1 + e.raw_a.exp()).log()
    p = (1 + e.raw_p.exp()).log() if form == "log" else 2 / (1 + (-e.raw_p).exp())

    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        x = abs(i - j)
        return -p[h] * (1 + a[h] * x).log() if form == "log" else -a[h] * x ** p[h]

    assert_adds(e, b)


def test_kerple_starts_in_its_range_and_stays() -> None:
    torch.manual_seed(0)
    for form in ("log", "power"):
        e = Kerple(dims(heads=2000), form=form)
        for values, most in ((e.p, 2), (e.a, 1)):
            assert 0.009 < values.min() < 0.05 * most and 0.95 * most < values.max() <= most
            assert abs(values.mean() - most / 2) < 0.05
        with torch.no_grad():
            e.raw_p.add_(30)
        assert form == "log" or e.p.max() <= 2


# --- Sandwich


@SITES
def test_sandwich_in_loops(site: str) -> None:
    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        waves = [math.cos((i - j) * 10000 ** (-2 * m / 12)) for m in range(1, 7)]
        return torch.tensor((sum(waves) - 6) / (8 * (h + 1) / 2), dtype=torch.float64)

    assert_adds(Sandwich(dims(site), width=12), b)


# --- FIRE


@SITES
@pytest.mark.parametrize("per_layer", [True, False])
@pytest.mark.parametrize("m", [1.0, -0.01])
def test_fire_in_loops(site: str, per_layer: bool, m: float) -> None:
    """Also where the threshold |m L0| = 5.12 is below most queries."""
    e = shaken(Fire(dims(site), hidden=5, per_layer=per_layer))
    assert isinstance(e, Fire) and len(e.curves) == (2 if per_layer else 1)
    for f in e.curves:
        f.m.data.fill_(m)

    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        f = e.curves[layer * per_layer]
        over = torch.log((f.c * max(i, abs(512 * m))).abs() + 1) + 1e-6
        x = torch.log((f.c * abs(i - j)).abs() + 1) / over
        hidden = (f.first.weight[:, 0] * x + f.first.bias).clamp(min=0)
        return f.last.weight[h] @ hidden + f.last.bias[h]

    assert_adds(e, b)


def test_fire_over_the_length() -> None:
    e = shaken(Fire(dims(), normaliser="length"))
    assert isinstance(e, Fire)
    with torch.no_grad():
        for f in e.curves:
            f.m.fill_(0.01)
    at = torch.arange(9)[None]
    lengths = torch.tensor([9, 7])
    bias = bias_of(e, context=Context("encoder", at, at, at, rows=2, lengths=lengths))
    assert bias.shape == (2, 2, 9, 9) and (bias[0] - bias[1]).abs().max() > 1e-4
    f = e.curves[0]
    for row, n in ((0, 9), (1, 7)):
        for x in range(7):
            share = torch.log1p(f.c.abs() * x) / (torch.log1p(f.c.abs() * n) + 1e-6)
            wanted = f.last(f.first(share[None]).relu())
            assert torch.allclose(bias[row, :, 0, x], wanted, atol=1e-12)
            assert torch.allclose(bias[row, :, x, 0], wanted, atol=1e-12)
    decoder = Fire(dims("decoder"), normaliser="length")
    assert decoder.bias(0, pass_over(4, "decoder")) is not None  # the query's index


# --- DiSAN


def test_disan_forward_heads_are_causal_attention() -> None:
    e = Disan(dims(heads=4))
    q, k, v = qkv(7, e.dims)
    p = attend(e, q, k, v, pass_over(7))[1]
    past = (q @ k.mT / 2).masked_fill(~causal(7, 7, q.device), -torch.inf).softmax(-1)
    ahead = (q @ k.mT / 2).masked_fill(~causal(7, 7, q.device).mT, -torch.inf).softmax(-1)
    assert torch.allclose(p[:, :2], past[:, :2], atol=1e-12)
    assert torch.allclose(p[:, 2:], ahead[:, 2:], atol=1e-12)
    assert Disan(dims("decoder")).bias(0, pass_over(7, "decoder")) is None


def test_disan_strict_masks_leave_no_row_empty() -> None:
    e = Disan(dims(), diagonal=False)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None]
    at = torch.arange(5)[None]
    bias = bias_of(e, context=Context("encoder", at, at, at, rows=2, allowed=real))
    seen = (bias == 0) & real
    for row, n in ((0, 5), (1, 3)):
        for i in range(n):
            assert seen[row, 0, i].nonzero()[:, 0].tolist() == (list(range(i)) or [0])
            assert seen[row, 1, i].nonzero()[:, 0].tolist() == (list(range(i + 1, n)) or [n - 1])


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: T5(dims(), buckets=30), "buckets=30: must be a multiple of 4"),
        (lambda: T5(dims(), max_distance=8), "max_distance=8: must be above 8"),
        (lambda: Alibi(dims(heads=3), directional=True), "3 heads cannot be halved"),
        (lambda: Sandwich(dims(), width=7), "width=7: must be even"),
        (lambda: Disan(dims(heads=3)), "3 heads cannot be halved"),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Encoding], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
