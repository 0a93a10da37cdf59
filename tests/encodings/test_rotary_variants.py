"""Rotary without slow pairs, with several frequencies in each, and by words, in plain loops."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.rotary.fope import Fope
from nmt.encodings.rotary.p_rope import PRope
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.rotary.selective_rope import SelectiveRope
from nmt.encodings.site import Encodings
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import attend, dims, drawn, pass_over, qkv
from tests.encodings.test_rotary import scores_in_loops

N = 7
Pairs = list[tuple[Tensor, Tensor]]


def gradients(found: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(found.square().sum(), inputs, retain_graph=True)


@pytest.mark.parametrize(
    ("p", "w"),
    [
        (1.0, [1, 0.1, 0.01, 1e-3]),
        (0.75, [1, 0.1, 0.01, 0]),
        (0.7, [1, 0.1, 0, 0]),
        (0.25, [1, 0, 0, 0]),
    ],
)
def test_slow_pairs_do_not_turn(p: float, w: list[float]) -> None:
    e = PRope(dims("decoder", head_dim=8), p=p).double()
    q, k, v = (t.requires_grad_() for t in qkv(N, e.dims))
    found, _, _ = attend(e, q, k, v, pass_over(N))
    wanted = scores_in_loops(q, k, w, [1.0] * 4, 0.0) / math.sqrt(8)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(found, q, k), gradients(wanted, q, k))


def test_some_pair_must_turn() -> None:
    for p in (0.1, 1.5):
        with pytest.raises(ValueError, match=f"p={p}: must let 1 to 4 pairs rotate"):
            PRope(dims(head_dim=8), p=p)
    with pytest.raises(ValueError, match="original=6: no pair turns once"):
        Fope(dims(), original=6)


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


@pytest.mark.parametrize("form", ["authors", "vllm"])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize(
    ("original", "w"), [(64, [1, 0.1]), (7, [1]), (7000, [1, 0.1, 0.01, 1e-3])]
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


@pytest.mark.parametrize(
    ("head_dim", "original", "form", "shape", "ones"),
    [
        (16, 64, "authors", (3, 3), [(0, 0), (1, 1), (2, 2)]),  # w_b = 10^(-b / 2)
        (16, 210, "authors", (4, 4), [(0, 0), (1, 1), (2, 2), (3, 3)]),
        (16, 700, "authors", (5, 4), [(0, 0), (2, 1), (4, 2)]),
        (16, 700, "vllm", (5, 5), [(b, b) for b in range(5)]),
        (8, 7000, "authors", (4, 2), [(0, 0), (2, 1)]),
    ],
)
def test_every_pair_has_the_frequency_of_a_step(
    head_dim: int, original: int, form: Any, shape: tuple[int, int], ones: list[tuple[int, int]]
) -> None:
    """Their get_step_eye: of n frequencies for m pairs, each ceil(n / m)th."""
    e = Fope(dims(head_dim=head_dim), original=original, gain=0.0, form=form)
    wanted = torch.zeros(shape)
    for a, b in ones:
        wanted[a, b] = 1
    assert torch.equal(e.coefficients, wanted.expand(2, 2, 2, *shape))


def test_amounts_are_those_of_a_tensor_of_three_axes() -> None:
    """Xavier's fans of [heads, frequencies, pairs]: frequencies and heads, times pairs each."""
    e = Fope(dims(head_dim=64, heads=8, layers=20), original=512)
    noise = e.coefficients - torch.eye(16)
    assert noise.shape == (20, 2, 8, 16, 16)
    assert float(noise.std()) == pytest.approx(0.3 * math.sqrt(2 / (16 * 16 + 8 * 16)), rel=0.02)
    assert len({float(x) for x in noise.flatten()}) > 80_000  # layers, heads, C and S are not equal


def test_of_no_gain_comes_rotary_without_slow_pairs() -> None:
    q, k, v = qkv(N, dims(head_dim=8))
    still, slow = (
        attend(e, q, k, v, pass_over(N))[0]
        for e in (Fope(dims(head_dim=8), gain=0.0, form="vllm"), PRope(dims(head_dim=8), p=0.5))
    )
    torch.testing.assert_close(still, slow)


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


def made(site: str, layout: Any = "halves") -> SelectiveRope:
    e: SelectiveRope = drawn(SelectiveRope(dims(site), base=16.0, layout=layout, rank=3))
    e.name = "selective_rope"
    return e


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_words_choose_the_angles(site: str, layout: str) -> None:
    e, (q, k, v) = made(site, layout), qkv(N, dims())
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


def test_turns_by_words_keep_what_others_say_relative() -> None:
    """A shift of positions turns nothing here, where rotary would turn away from vectors."""
    by_words, by_position = made("encoder"), Rotary(dims())  # in other planes
    pairs = (
        *([by_words, Relative(dims())], [by_position, Relative(dims())]),
        *([by_words, by_position], [by_position, by_words]),
    )
    assert [Encodings([*pair]).relative for pair in pairs] == [True, False, True, False]
