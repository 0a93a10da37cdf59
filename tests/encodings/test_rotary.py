"""Rotated queries and keys against complex numbers and products of matrices in plain loops."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.rotary.fope import Fope
from nmt.encodings.rotary.p_rope import PRope
from nmt.encodings.rotary.path_attention import PathAttention
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.rotary.selective_rope import SelectiveRope
from nmt.encodings.rotary.xpos import Xpos
from nmt.encodings.rotary.yarn import Yarn
from tests.encodings.attending import attend, dims, pass_over, qkv, randomise


def scores_in_loops(q: Tensor, k: Tensor, w: list[float], z: list[float], share: float) -> Tensor:
    """Pair b of each product turned by (j - i) w_b and shrunk by z_b^((i - j) share)."""
    n, turned = q.shape[2], 2 * len(w)
    s = torch.einsum("bhid,bhjd->bhij", q[..., turned:], k[..., turned:])
    for b, i, j in product(range(len(w)), range(n), range(n)):
        x, y = (torch.complex(t[..., 2 * b], t[..., 2 * b + 1]) for t in (q[:, :, i], k[:, :, j]))
        angle = torch.tensor((j - i) * w[b], dtype=torch.float64)
        turn = torch.polar(torch.ones_like(angle), angle)
        s[:, :, i, j] += (x.conj() * y * turn).real * z[b] ** ((i - j) * share)
    return s


def interleaved(t: Tensor, turned: int) -> Tensor:
    """Components of the layout `halves`, of which the first so many turn, as neighbours."""
    pairs = torch.stack(t[..., :turned].chunk(2, -1), -1).flatten(-2)
    return torch.cat([pairs, t[..., turned:]], -1)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize(
    "options, w",
    [
        ({}, [1, 0.1, 0.01, 0.001]),
        ({"partial": 0.5}, [1, 0.01]),
        ({"base": 16.0}, [1, 0.5, 0.25, 0.125]),
        ({"scaling": "linear", "factor": 4.0}, [0.25, 0.025, 0.0025, 0.00025]),
        ({"scaling": "ntk", "factor": 8.0}, [1, 0.05, 0.0025, 0.000125]),
    ],
)
def test_rotary_in_loops(options: dict[str, Any], w: list[float], layout: str) -> None:
    """ntk: the base grows by 8^(8/6), so pair b turns 8^(b/3) times slower."""
    e = Rotary(dims(head_dim=8), layout=layout, **options)  # type: ignore[arg-type]
    q, k, v = qkv(9, e.dims)
    got, p, out = attend(e, q, k, v, pass_over(9))
    assert torch.equal(out, p @ v)
    first, _, _ = e.project(lambda *_: (q, k, v), q, k, v, 0, pass_over(9))
    assert torch.equal(first[:, :, 0], q[:, :, 0])  # each component in its place
    if layout == "halves":
        q, k = (interleaved(t, 2 * len(w)) for t in (q, k))
    wanted = scores_in_loops(q, k, w, [1.0] * 4, 0) * 8**-0.5
    assert torch.allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("site, share", [("decoder", 1 / 16), ("encoder", 0)])
def test_xpos_in_loops(site: str, share: float, layout: Any) -> None:
    e = Xpos(dims(site, head_dim=8), layout=layout, scale_base=16.0)
    q, k, v = qkv(9, e.dims)
    got = attend(e, q, k, v, pass_over(9, site))[0]
    if layout == "halves":
        q, k = interleaved(q, 8), interleaved(k, 8)
    zeta = [(2 * b / 8 + 0.4) / 1.4 for b in range(4)]
    wanted = scores_in_loops(q, k, [1, 0.1, 0.01, 0.001], zeta, share) * 8**-0.5
    assert torch.allclose(got, wanted, atol=1e-12)


def test_xpos_has_the_positions_whose_factors_float32_holds() -> None:
    e = Xpos(dims("decoder", head_dim=8), scale_base=0.5)
    q, k, v = (100 * t.float() for t in qkv(32, e.dims))
    assert attend(e, q, k, v, pass_over(32, "decoder"))[2].isfinite().all()
    assert e.max_length(training=False) == 32
    assert Xpos(dims("encoder"), scale_base=0.5).max_length(training=False) is None


N = 7
Pairs = list[tuple[Tensor, Tensor]]


def gradients(found: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(found.square().sum(), inputs, retain_graph=True)


@pytest.mark.parametrize(("p", "w"), [(0.7, [1, 0.1, 0, 0]), (0.25, [1, 0, 0, 0])])
def test_slow_pairs_do_not_turn(p: float, w: list[float]) -> None:
    e = PRope(dims("decoder", head_dim=8), p=p).double()
    q, k, v = (t.requires_grad_() for t in qkv(N, e.dims))
    found, _, _ = attend(e, q, k, v, pass_over(N))
    wanted = scores_in_loops(q, k, w, [1.0] * 4, 0.0) / math.sqrt(8)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, q, k), gradients(wanted, q, k))


def in_pairs(x: Tensor, layout: str) -> Pairs:
    half = x.shape[-1] // 2
    if layout == "interleaved":
        return [(x[..., 2 * b], x[..., 2 * b + 1]) for b in range(half)]
    return [(x[..., b], x[..., b + half]) for b in range(half)]


def fourier(e: Fope, layer: int, head: int, b: int, t: int, w: list[float]) -> tuple[float, float]:
    """c_b(t) and s_b(t); pairs without series are at the end."""
    cosines, sines = e.coefficients[layer, :, head]
    if b >= cosines.shape[1]:
        return 1.0, {"authors": 1.0, "vllm": 0.0}[e.form]
    c = sum(float(cosines[a, b]) * math.cos(w[a] * t) for a in range(len(w)))
    return c, sum(float(sines[a, b]) * math.sin(w[a] * t) for a in range(len(w)))


def fourier_scores(e: Fope, q: Tensor, k: Tensor, layer: int, w: list[float]) -> Tensor:
    """q'_i . k'_j / sqrt(head_dim)."""
    scores = torch.zeros(q.shape[0], 2, N, N, dtype=torch.float64)
    for head, i, j in product(range(2), range(N), range(N)):
        both = (in_pairs(x, e.layout) for x in (q[:, head, i], k[:, head, j]))
        for b, ((x, y), (u, v)) in enumerate(zip(*both, strict=True)):
            (c, s), (d, r) = (fourier(e, layer, head, b, t, w) for t in (i, j))
            product_of_pair = (x * c - y * s) * (u * d - v * r) + (x * s + y * c) * (u * r + v * d)
            scores[:, head, i, j] += product_of_pair / math.sqrt(q.shape[-1])
    return scores


@pytest.mark.parametrize(
    ("form", "layout", "original", "w"),
    [("authors", "halves", 7000, [1, 0.1, 0.01, 1e-3]), ("vllm", "interleaved", 64, [1, 0.1])],
)
def test_pairs_turn_at_series_of_frequencies(
    form: Any, layout: Any, original: int, w: list[float]
) -> None:
    torch.manual_seed(1)
    e = Fope(dims(head_dim=8), layout=layout, original=original, gain=2.0, form=form).double()
    q, k, v = (t.requires_grad_() for t in qkv(N, e.dims))
    for layer in range(2):
        found, _, _ = attend(e, q, k, v, pass_over(N), layer=layer)
        wanted = fourier_scores(e, q, k, layer, w)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(gradients(found, q, k), gradients(wanted, q, k))
    assert [*e.state_dict()] == ["coefficients"] and not [*e.parameters()]


def chosen_angles(e: SelectiveRope, x: Tensor, head: int, b: int) -> list[Tensor]:
    """The sum of f up to each word, for pair b of a head in layer 1; x [rows, n, dim]."""
    width, pairs = e.dims.head_dim, e.dims.head_dim // 2
    parts = [x[..., h : h + width] for h in range(0, x.shape[-1], width)]
    units = torch.cat([part / part.square().sum(-1, keepdim=True).sqrt() for part in parts], -1)
    before = units @ e.down[1, 0] @ e.up[1, 0]
    sums, total = [], torch.zeros(len(x), dtype=x.dtype)
    for t in range(x.shape[1]):
        for ago in range(min(t, 3) + 1):
            total = total + e.taps[1, head, 3 - ago, b] * before[:, t - ago, head * pairs + b]
        sums.append(total)
    return sums


def selective(site: str, layout: Any = "halves") -> SelectiveRope:
    e: SelectiveRope = randomise(SelectiveRope(dims(site), base=16.0, layout=layout, rank=3))
    e.name = "selective_rope"
    return e


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_words_choose_the_angles(site: str, layout: str) -> None:
    e, (q, k, v) = selective(site, layout), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, k)]
    found, _, _ = attend(e, q, k, v, pass_over(N, site), layer=1)
    wanted = torch.zeros(2, 2, N, N, dtype=torch.float64)
    for head, b in product(range(2), range(2)):
        sums = chosen_angles(e, q.transpose(1, 2).flatten(2), head, b)
        for i, j in product(range(N), range(N)):
            (x, y), (u, w) = (in_pairs(t, layout)[b] for t in (q[:, head, i], k[:, head, j]))
            angle = (sums[j] - sums[i]) * 16.0 ** (-b / 2)
            turned = (x * u + y * w) * angle.cos() + (y * u - x * w) * angle.sin()
            wanted[:, head, i, j] += turned / 2
    torch.testing.assert_close(found, wanted)
    learned = [*inputs, *e.parameters()]
    one, other = (torch.autograd.grad(t.exp().sum(), learned) for t in (found, wanted))
    torch.testing.assert_close(one, other)
    assert all(g.any() for g in one)


WIDTH, PAIRS = 32, 16


def kept(ramp: Any, b: int, original: int) -> float:
    """The share of pair b's frequency that stays, beta 32 and 1."""
    w = 10000 ** (-2 * b / WIDTH)
    if ramp == "turns":
        return min(max((original * w / (2 * math.pi) - 1) / 31, 0), 1)
    places = [
        WIDTH * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(10000))
        for turns in (32, 1)
    ]
    first, last = max(math.floor(places[0]), 0), min(math.ceil(places[1]), WIDTH - 1)
    return 1 - min(max((b - first) / (last - first), 0), 1)


@pytest.mark.parametrize("ramp", ["components", "turns"])
@pytest.mark.parametrize("original, factor", [(64, 4.0), (100_000, 16.0)])
def test_yarn_in_loops(ramp: Any, original: int, factor: float) -> None:
    e = Yarn(dims(head_dim=WIDTH), factor=factor, original=original, ramp=ramp)
    q, k, v = qkv(6, e.dims)
    found = attend(e, q, k, v, pass_over(6))[0]
    sharper = (0.1 * math.log(factor) + 1) ** 2
    w = []
    for b in range(PAIRS):
        g, frequency = kept(ramp, b, original), 10000 ** (-2 * b / WIDTH)
        w.append(g * frequency + (1 - g) * frequency / factor)
    wanted = scores_in_loops(q, k, w, [1.0] * PAIRS, 0)
    torch.testing.assert_close(found, wanted * sharper * WIDTH**-0.5)


def path_attention_of(site: str) -> PathAttention:
    e: PathAttention = randomise(PathAttention(dims(site), rank=3))
    e.name = "path_attention"
    return e


def transformation(e: PathAttention, x: Tensor, t: int, layer: int, head: int) -> Tensor:
    """H_t [head_dim, head_dim] of one row of inputs x [n, dim]."""
    width = e.dims.head_dim
    direction = torch.zeros(width, dtype=x.dtype)
    for ago in range(min(t, 2) + 1):
        before = x[t - ago] @ e.down[layer, 0] @ e.up[layer, 0]
        tap = e.taps[layer, head, 2 - ago]
        direction = direction + tap * before[head * width : (head + 1) * width]
    direction = direction / (1 + torch.exp(-direction))
    w = direction / direction.square().sum().sqrt()
    beta = 2 / (1 + torch.exp(-x[t] @ e.beta[layer, 0, :, head] - e.beta_bias[layer, head]))
    return torch.eye(width, dtype=x.dtype) - beta * torch.outer(w, w)


def between(site: str, i: int, j: int) -> list[int]:
    """The words from query i to key j, in the order of the product."""
    return [*range(i, j, -1)] if j <= i else [*range(i, j)] if site == "encoder" else []


def scores_along_paths(e: PathAttention, q: Tensor, k: Tensor, layer: int) -> Tensor:
    rows = []
    for x, qs, ks in zip(q.transpose(1, 2).flatten(2), q, k, strict=True):
        for head in range(2):
            h = [transformation(e, x, t, layer, head) for t in range(N)]
            for i in range(N):
                for j in range(N):
                    key = ks[head, j]
                    for t in reversed(between(e.dims.site, i, j)):
                        key = h[t] @ key
                    rows.append(qs[head, i] @ key / math.sqrt(e.dims.head_dim))
    return torch.stack(rows).view(len(q), 2, N, N)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_equals_products_of_matrices_in_loops(site: str) -> None:
    e, (q, k, v) = path_attention_of(site), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, k)]
    context = pass_over(N, site)
    found, p, _ = attend(e, q, k, v, context, layer=1)
    wanted = scores_along_paths(e, q, k, 1)
    torch.testing.assert_close(found, wanted)
    if context.allowed is not None:
        wanted = wanted.masked_fill(~context.allowed, -torch.inf)
    torch.testing.assert_close(p, wanted.softmax(-1))
    learned = [*inputs, *e.parameters()]
    draw = torch.randn_like(v)
    one, other = (
        torch.autograd.grad((share @ draw).square().sum(), learned)
        for share in (p, wanted.softmax(-1))
    )
    torch.testing.assert_close(one, other)
    assert all(g.any() for g in one)


def test_of_a_strength_of_zero_nothing_is_taken() -> None:
    e, (q, k, v) = path_attention_of("encoder"), qkv(N, dims())
    with torch.no_grad():
        e.beta_bias.fill_(-1e9)
    found, _, _ = attend(e, q, k, v, pass_over(N))
    torch.testing.assert_close(found, q @ k.mT / 2)
