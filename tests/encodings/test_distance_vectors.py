"""Vectors of distances against their formulas in loops."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.encodings.biases.da_transformer import DaTransformer, rescale
from nmt.encodings.context import Context, causal
from nmt.encodings.sinusoids import frequencies
from nmt.encodings.vectors.composite import Composite
from nmt.encodings.vectors.cope import Cope
from nmt.encodings.vectors.deberta import Deberta
from nmt.encodings.vectors.irpe import Irpe
from nmt.encodings.vectors.tener import Tener
from nmt.encodings.vectors.transformer_xl import TransformerXl
from nmt.encodings.vectors.wavelet import Wavelet
from nmt.model.layers import Layer
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, equals_loops, pass_over, qkv, randomise


def counting(site: str = "decoder", counts: int = 4) -> Cope:
    """In float64, with vectors of its own."""
    torch.manual_seed(0)
    e = Cope(dims(site), counts=counts).double()
    torch.nn.init.normal_(e.weight)
    return e


def loops(e: Cope, q: Tensor, k: Tensor, layer: int, allowed: Tensor | None = None) -> Tensor:
    """Scaled logits, one pair at a time; gates of all tokens between the two, both included."""
    rows, heads, n, width = q.shape
    out = q.new_zeros(rows, heads, n, n)
    for b, h, i, j in product(range(rows), range(heads), range(n), range(n)):
        count = torch.zeros((), dtype=torch.float64)
        for m in range(min(i, j), max(i, j) + 1):
            if allowed is None or allowed[0, 0, i, m]:
                count += torch.sigmoid(q[b, h, i] @ k[b, h, m] / width**0.5)
        count = count.clamp(max=e.counts - 1)
        low = int(count)
        high = min(low + 1, e.counts - 1)
        z = e.weight[layer, 0] @ q[b, h, i]
        out[b, h, i, j] = q[b, h, i] @ k[b, h, j] / width**0.5
        out[b, h, i, j] += z[low] + (count - low) * (z[high] - z[low])
    return out


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("counts", [3, 64])
def test_cope_in_loops(site: str, counts: int) -> None:
    e = counting(site, counts)
    q, k, v = qkv(9, e.dims)
    for layer in range(2):
        c = pass_over(9, site)
        got = attend(e, q, k, v, c, layer)[0]
        wanted = loops(e, q, k, layer, c.allowed)
        seen = causal(9, 9, q.device) if site == "decoder" else torch.tensor(True)
        assert torch.allclose(got * seen, wanted * seen, atol=1e-9)


def test_counts_stay_apart_in_bfloat16() -> None:
    """256 + 1 is 256 in bfloat16; here every gate is 1, and z[p] = p mod 2."""
    e = Cope(dims("decoder"), counts=400)
    with torch.no_grad():
        e.weight.copy_((torch.arange(400.0) % 2)[:, None] / 4)
    q = torch.ones(1, 2, 1, 4, dtype=torch.bfloat16)
    k = torch.full((1, 2, 350, 4), 100.0, dtype=torch.bfloat16)
    at = torch.arange(350)[None]
    s = e.scores(q @ k.mT, q, k, 0, Context("decoder", at[:, -1:], at, at[:, -1:]))
    assert torch.equal(s[0, 0, 0] - 400, 2 * (torch.arange(350, 0, -1) % 2).float())


sites = pytest.mark.parametrize("site", ["encoder", "decoder"])


def pe(x: float, width: int, denominator: Any = "paper") -> Tensor:
    """Sines, then cosines, of one distance in float64."""
    a = x * frequencies(width, denominator)
    return torch.cat([a.sin(), a.cos()])


@sites
@pytest.mark.parametrize("p2c", ["code", "paper"])
def test_deberta_equals_the_formula(site: str, p2c: Any) -> None:
    e = randomise(Deberta(dims(site), 2, p2c))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        there = max(0, min(3, i - j + 2))
        back = there if p2c == "code" else max(0, min(3, j - i + 2))
        rows = slice(4 * h, 4 * h + 4)
        of_key = e.w_kr[layer, 0, rows] @ e.p[there]
        of_query = e.w_qr[layer, 0, rows] @ e.p[back]
        return (q @ k + q @ of_key + k @ of_query) / 12**0.5

    equals_loops(e, logit)


@sites
@pytest.mark.parametrize("untie", [False, True])
def test_transformer_xl_equals_the_formula(site: str, untie: bool) -> None:
    e = randomise(TransformerXl(dims(site), untie))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        r = e.w_r[layer, 0, 4 * h : 4 * h + 4] @ pe(i - j, 8)
        u, v = (t[layer if untie else 0, h, 0] for t in (e.u, e.v))
        return (q @ k + q @ r + u @ k + v @ r) / 2

    equals_loops(e, logit)


@sites
@pytest.mark.parametrize(
    "options", [{}, {"scaled": True}, {"key_term": True, "denominator": "tensor2tensor"}]
)
def test_tener_equals_the_formula(site: str, options: dict[str, Any]) -> None:
    e = randomise(Tener(dims(site), **options))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        r, back = (pe(x, 4, options.get("denominator", "paper")) for x in (i - j, j - i))
        u, v = e.u[layer, h, 0], e.v[layer, h, 0]
        logit = q @ k + q @ r + u @ k + v @ r
        logit = logit + k @ back if options.get("key_term") else logit
        return logit / 2 if options.get("scaled") else logit

    equals_loops(e, logit)


def test_tener_takes_keys_from_the_input_itself(tiny: Callable[..., Transformer]) -> None:
    """Only those of self-attention, and other keys where the option says so."""
    attention = cast(Layer, tiny("encoding=tener").encoder.layers[0]).attention
    x = torch.randn(2, 5, 16)
    assert torch.equal(attention._split(x, x, x)[1].transpose(1, 2).flatten(2), x)
    names = tiny("encoding=tener").state_dict()
    assert any(".cross.key" in name for name in names)
    assert not any(".attention.key" in name for name in names)
    projected = tiny("encoding=tener", "encoding.tener.key_projection=true").state_dict()
    assert any(".attention.key" in name for name in projected)


REAL = {
    "transformer_xl": lambda: randomise(TransformerXl(dims())),
    "tener": lambda: randomise(Tener(dims(), key_term=True)),
}


@pytest.mark.parametrize("name", REAL)
def test_positions_between_whole_numbers_fit_in(name: str) -> None:
    """The addition theorem and the table of distances are one function of the positions."""
    e = REAL[name]()
    q, k, v = qkv(9, e.dims)
    whole = attend(e, q, k, v, pass_over(9))[0]
    at = torch.arange(9, dtype=torch.float64)[None]
    assert torch.allclose(attend(e, q, k, v, Context("encoder", at, at, at))[0], whole, atol=1e-11)
    rows = (torch.arange(9) + torch.tensor([[0], [1000]])).long()  # each sentence has its own
    c = Context("encoder", rows, rows, rows, rows=2)
    assert torch.allclose(attend(e, q, k, v, c)[0], whole, atol=1e-9)
    for one in (at, at.long()):  # a step of decoding
        c = Context("decoder", one[:, -1:], one, one[:, -1:], rows=2)
        step = e.scores(q[:, :, -1:] @ k.mT, q[:, :, -1:], k, 0, c) * (e.score_scale or 0.5)
        assert torch.allclose(step, whole[:, :, -1:], atol=1e-11)
    half = attend(e, q, k, v, Context("encoder", at / 2, at / 2, at / 2))[0]
    assert (half - whole).abs().max() > 0.01
    assert torch.allclose(half[:, :, 0, 0], whole[:, :, 0, 0], atol=1e-11)


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
    e = randomise(Irpe(dims(site), **{"key": "contextual"} | options, alpha=2, beta=4, gamma=6))

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


@sites
@pytest.mark.parametrize("parts", [(1, 1, 1), (0, 0, 1), (1, 0, 0), (0, 1, 0)])
def test_composite_equals_the_formula_in_two_loops(site: str, parts: tuple[int, ...]) -> None:
    fixed, query, key = map(bool, parts)
    e = randomise(Composite(dims(site), 2, fixed, query, key))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        x, back = (max(-2, min(2, d)) + 2 for d in (j - i, i - j))
        logit = q @ k / 2
        logit = logit + e.f[layer, h, x, 0] if fixed else logit
        logit = logit + q @ e.c_q[layer, 0, x] / 2 if query else logit
        return logit + k @ e.c_k[layer, 0, back] / 2 if key else logit

    equals_loops(e, logit)


@sites
def test_da_transformer_equals_the_formula_in_two_loops(site: str) -> None:
    e = randomise(DaTransformer(dims(site)))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        v, w = e.v[layer, h].item(), e.w[layer, h].item()
        return (q @ k).clamp(min=0) * (1 + math.exp(v)) / (1 + math.exp(v - w * abs(i - j))) / 2

    equals_loops(e, logit)


def test_da_transformer_stays_finite_where_the_formula_overflows() -> None:
    v, w = torch.tensor(1.0, requires_grad=True), torch.tensor(-9.0, requires_grad=True)
    r = rescale(torch.tensor([0.0, 10, 1000]), v, w)
    r.sum().backward()
    assert r[0] == 1 and r[2] == 0 and v.grad is not None and w.grad is not None
    assert v.grad.isfinite() and w.grad.isfinite()


def wave(t: float, a: float, b: float) -> float:
    x = (t - b) / a
    return (1 - x * x) * math.exp(-x * x / 2)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("scales, first", [(2, 0), (4, 2), (8, -1)])
def test_wavelet_equals_the_formula(site: str, scales: int, first: int) -> None:
    shifts = [0, -1, 1, -2] if site == "encoder" else [0, 1, 2, 3]
    places = list(product(range(first, first + scales), shifts[: 8 // scales]))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        p = [wave(i - j, 2**a, b) for a, b in places]
        return q @ (k + torch.tensor(p, dtype=torch.float64)) / 8**0.5

    equals_loops(Wavelet(dims(site, head_dim=8), scales, first), logit)
