"""Biases of distances and of words against their formulas in loops, and golden numbers."""

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
from nmt.encodings.biases.dape import BIASES, Dape
from nmt.encodings.biases.disan import Disan
from nmt.encodings.biases.fire import Fire
from nmt.encodings.biases.fox import Fox
from nmt.encodings.biases.kerple import Kerple
from nmt.encodings.biases.sandwich import Sandwich
from nmt.encodings.biases.t5 import T5, bucket
from nmt.encodings.context import Context
from tests.encodings.attending import attend, dims, equals_loops, pass_over, qkv, randomise

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


@SITES
def test_t5_in_loops(site: str) -> None:
    e = randomise(T5(dims(site), buckets=8, max_distance=6))

    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        return e.weight[h, bucket(torch.tensor(j - i), 8, 6, site == "encoder")]

    assert_adds(e, b)


# --- tables


@SITES
@pytest.mark.parametrize("per_layer, per_head", [(True, False), (False, True)])
def test_tables_in_loops(site: str, per_layer: bool, per_head: bool) -> None:
    relative = randomise(BiasTable(dims(site), "relative", 3, per_layer, per_head))
    absolute = randomise(BiasTable(dims(site), "absolute", 9, per_layer, per_head))

    def number(e: BiasTable, layer: int, h: int, row: int) -> Tensor:
        return e.weight[layer * per_layer, h * per_head, row, 0]

    assert_adds(relative, lambda t, h, i, j: number(relative, t, h, max(-2, min(2, j - i)) + 2))
    assert_adds(absolute, lambda t, h, i, j: number(absolute, t, h, 9 * i + j))
    assert (relative.max_length(False), absolute.max_length(False)) == (None, 9)
    assert relative.relative and not absolute.relative


# --- ALiBi and KERPLE


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
    e = randomise(Kerple(dims(site), form=form))
    a = (1 + e.raw_a.exp()).log()
    p = (1 + e.raw_p.exp()).log() if form == "log" else 2 / (1 + (-e.raw_p).exp())

    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        x = abs(i - j)
        return -p[h] * (1 + a[h] * x).log() if form == "log" else -a[h] * x ** p[h]

    assert_adds(e, b)


# --- Sandwich


@SITES
def test_sandwich_in_loops(site: str) -> None:
    def b(layer: int, h: int, i: int, j: int) -> Tensor:
        waves = [math.cos((i - j) * 10000 ** (-2 * m / 12)) for m in range(1, 7)]
        return torch.tensor((sum(waves) - 6) / (8 * (h + 1) / 2), dtype=torch.float64)

    assert_adds(Sandwich(dims(site), width=12), b)


# --- FIRE


@SITES
@pytest.mark.parametrize("per_layer, m", [(True, 1.0), (False, -0.01)])
def test_fire_in_loops(site: str, per_layer: bool, m: float) -> None:
    """Also where the threshold |m L0| = 5.12 is below most queries."""
    e = randomise(Fire(dims(site), hidden=5, per_layer=per_layer))
    assert len(e.curves) == (2 if per_layer else 1)
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
    e = randomise(Fire(dims(), normaliser="length"))
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


EVERY_SITE = ("encoder", "decoder", "cross")


def forgetting(site: str) -> Fox:
    torch.manual_seed(1)
    e = Fox(dims(site)).double()
    e.name = "fox"
    torch.nn.init.normal_(e.weight)
    torch.nn.init.normal_(e.gate_bias)
    return e


def gates(e: Fox, x: Tensor, layer: int) -> Tensor:
    """log f [batch, heads, key]."""
    logits = torch.einsum("bnd,hd->bhn", x, e.weight[layer]) + e.gate_bias[layer][:, None]
    return -torch.log1p(torch.exp(-logits))


def test_forget_gates_in_loops() -> None:
    for site in EVERY_SITE:
        e, (q, k, v) = forgetting(site), qkv(7, dims())
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
    e, (q, k, v) = forgetting("cross"), qkv(7, dims())
    padded = pass_over(7, "cross")
    padded.allowed = (torch.arange(7) < torch.tensor([7, 4])[:, None])[:, None, None]
    found, _, _ = attend(e, q, k, v, padded)
    alone, _, _ = attend(e, q[1:, :, :4], k[1:, :, :4], v[1:, :, :4], pass_over(4, "cross", 1))
    torch.testing.assert_close(found[1:, :, :4, :4], alone)


def mixing(site: str, bias: Any = "kerple_log") -> Dape:
    torch.manual_seed(1)
    e = Dape(dims(site), bias, width=5).double()
    for p in e.parameters():
        torch.nn.init.normal_(p)
    return e


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("bias", BIASES)
def test_dape_in_loops(site: str, bias: Any) -> None:
    e, (q, k, v) = mixing(site, bias), qkv(6, dims())
    context = pass_over(6, site)
    found, _, _ = attend(e, q, k, v, context, layer=1)
    biases = attend(e.inner, q, k, v, context, layer=1)[0] - q @ k.mT / 2
    w1, b1, w2, b2 = e.mixers[1].parameters()
    for i in range(6):
        for j in range(6):
            scores = (q[:, :, i] * k[:, :, j]).sum(-1) / 2  # [batch, heads]
            x = torch.cat([scores, biases[:, :, i, j]], -1)
            hidden = x @ w1.T + b1
            hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
            wanted = x[:, :2] + x[:, 2:] + hidden @ w2.T + b2
            torch.testing.assert_close(found[:, :, i, j], wanted)
