"""Weights other than softmax, coverage and gates: against formulas in plain loops."""

import math
import re
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks.example import small_settings
from nmt.encodings import base
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.biases.sliding_window import SlidingWindow
from nmt.encodings.context import Context
from nmt.encodings.softmax.coverage import Coverage
from nmt.encodings.softmax.gated_attention import GatedAttention
from nmt.encodings.softmax.gaussian import Gaussian
from nmt.encodings.softmax.sigmoid_attention import SigmoidAttention
from nmt.encodings.softmax.ssmax import Ssmax
from nmt.encodings.softmax.stick_breaking import StickBreaking
from nmt.encodings.vectors.relative import Relative
from nmt.testing import check_encoding
from tests.encodings.attending import attend, dims, pass_over, qkv, randomise
from tests.pages import text_of

WORDS = 6


def covered(e: Coverage, q: Tensor, k: Tensor, layer: int) -> Tensor:
    """The scores with the term, in loops over target words and source words."""
    s = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    for b in range(len(q)):
        for h in range(q.shape[1]):
            total = [0.0] * k.shape[2]
            for i in range(q.shape[2]):
                plain = [float(q[b, h, i] @ k[b, h, j]) / 2 for j in range(k.shape[2])]
                for j, score in enumerate(plain):
                    phi = 1.0
                    if e.fertility is not None:
                        u = e.fertility[layer, h, :, 0]
                        phi = 2 / (1 + math.exp(-float((u @ k[b, h, j]).detach())))
                    s[b, h, i, j] = score + float(e.weight[layer, h].detach()) * total[j] / phi
                parts = [math.exp(score) for score in plain]
                total = [t + part / sum(parts) for t, part in zip(total, parts, strict=True)]
    return s


@pytest.mark.parametrize("fertility", [True, False])
def test_coverage_equals_loops(fertility: bool) -> None:
    e = randomise(Coverage(dims("cross"), fertility))
    q, k, v = qkv(WORDS, dims())
    scores, _, _ = attend(e, q, k, v, pass_over(WORDS, "cross"), layer=1)
    torch.testing.assert_close(scores, covered(e, q, k, 1))


@pytest.mark.parametrize("per", ["component", "head"])
@pytest.mark.parametrize("norm", [True, False])
def test_gates_equal_loops(per: str, norm: bool) -> None:
    e = randomise(GatedAttention(dims(), per=per, norm=norm))  # type: ignore[arg-type]
    q, k, v = qkv(WORDS, dims())
    _, p, o = attend(e, q, k, v, pass_over(WORDS), layer=1)
    x = q.transpose(1, 2).flatten(2)
    for h in range(2):
        for i in range(WORDS):
            given = sum(p[0, h, i, j] * v[0, h, j] for j in range(WORDS))
            assert isinstance(given, Tensor)
            if norm:
                given = given / (given.square().mean() + torch.finfo(given.dtype).eps).sqrt()
            for d in range(4):
                row = e.weight[1, h * 4 + d if per == "component" else h]
                gate = 1 / (1 + math.exp(-float((row @ x[0, i]).detach())))
                torch.testing.assert_close(o[0, h, i, d], gate * given[d])


def test_the_example_of_the_page_passes_all_checks() -> None:
    """Beams, steps and padding, for who counts attention as docs/adding-an-encoding.md shows."""
    method = re.search(
        r"```py\n(    def scores.*?)```", text_of("docs/adding-an-encoding.md"), re.S
    )
    assert method is not None
    names: dict[str, Any] = dict(vars(base))
    exec(dedent(method[1]), names)

    class Tired(Encoding):
        relative, position_type = True, "none"

        def __init__(self, dims: Dims, strength: float = 2.0) -> None:
            super().__init__(dims)
            self.strength = torch.nn.Parameter(torch.tensor(strength))

        def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
            return names["scores"](self, s, q, k, layer, context)

    entries: dict[str, dict[str, Any]] = {"absolute": {}, "tired": {"use": Tired, "where": "cross"}}
    check_encoding(small_settings("none", entries=entries), tokens=8)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("keys", [0, 3])
def test_sigmoid_attention_in_loops(site: str, keys: int) -> None:
    e, (q, k, v) = SigmoidAttention(dims(site), keys).double(), qkv(7, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    for i in range(7):
        n = i + 1 if site == "decoder" else 7
        for j in range(7):
            wanted = 1 / (1 + (keys or n) * torch.exp(-scores[:, :, i, j]))
            torch.testing.assert_close(p[:, :, i, j], wanted if j < n else 0 * wanted)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_keys_outside_of_a_window_do_not_count(site: str) -> None:
    e, (q, k, v) = [SlidingWindow(dims(site), 2), SigmoidAttention(dims(site))], qkv(9, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(9, site))
    near = slice(2, 5 if site == "decoder" else 7)  # of the fifth token
    wanted = 1 / (1 + (near.stop - 2) * torch.exp(-scores[:, :, 4, near]))
    torch.testing.assert_close(p[:, :, 4, near], wanted)
    torch.testing.assert_close(p[:, :, 4].sum(-1), wanted.sum(-1))


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_ssmax_in_loops(site: str) -> None:
    torch.manual_seed(1)
    e, (q, k, v) = Ssmax(dims(site)).double(), qkv(7, dims())
    torch.nn.init.normal_(e.factor)
    scores = q @ k.mT / 2
    _, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    for h in range(2):
        for i in range(7):
            n = i + 1 if site == "decoder" else 7
            powers = n ** (e.factor[1, h] * scores[0, h, i, :n])
            torch.testing.assert_close(p[0, h, i, :n], powers / powers.sum())
            assert not p[0, h, i, n:].any()


def test_products_with_the_query_are_sharpened_and_biases_are_not() -> None:
    e, (q, k, v) = Ssmax(dims(), start=0.5).double(), qkv(7, dims())
    vectors, biases = Relative(dims(), 2, value=False).double(), Alibi(dims()).double()
    context = pass_over(7)
    alone = attend(vectors, q, k, v, context)[0]
    scores, _, _ = attend([vectors, e, biases], q, k, v, context)
    log_n = torch.tensor(7.0).double().log()
    bias = biases.bias(0, context)
    assert bias is not None
    torch.testing.assert_close(scores, alone * 0.5 * log_n + bias)


def test_a_row_that_may_see_nothing_spoils_no_gradient() -> None:
    e, (q, k, v) = Ssmax(dims()).double(), qkv(7, dims())
    padded = pass_over(7)
    padded.allowed = (torch.arange(7) < torch.tensor([7, 0])[:, None])[:, None, None]
    attend(e, q, k, v, padded)[2].sum().backward()
    assert e.factor.grad is not None and e.factor.grad.isfinite().all()


def order(site: str, head: int, i: int, n: int, itself: bool) -> list[int]:
    """The keys that query i sees, in the order in which they break the stick."""
    if site == "cross":
        return [*reversed(range(n))]
    own = [i] * itself
    if site == "encoder" and head == 1:
        return [*own, *range(i + 1, n)]
    return [*own, *reversed(range(i))]


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("itself, remainder", [(False, True), (True, False)])
def test_stick_breaking_in_loops(site: str, itself: bool, remainder: bool) -> None:
    e, (q, k, v) = StickBreaking(dims(site), itself, remainder).double(), qkv(7, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    wanted = torch.zeros_like(p)
    for head in range(2):
        for i in range(7):
            left = torch.ones(2, dtype=torch.float64)
            for j in order(site, head, i, 7, itself):
                beta = 1 / (1 + torch.exp(-scores[:, head, i, j]))
                wanted[:, head, i, j] = beta * left
                left = left * (1 - beta)
            if remainder and site != "cross":
                wanted[:, head, i, i] += left
    torch.testing.assert_close(p, wanted)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_what_is_left_goes_to_a_learned_vector_in_loops(site: str) -> None:
    e = StickBreaking(dims(site), True, remainder_vector=True).double()
    assert e.vector is not None and e.vector.shape == (2, 2, 1, 4) and not e.vector.any()
    torch.nn.init.normal_(e.vector)
    q, k, v = qkv(7, dims())
    scores, _, o = attend(e, q, k, v, pass_over(7, site), layer=1)
    wanted = torch.zeros_like(o)
    for head in range(2):
        for i in range(7):
            left = torch.ones(2, 1, dtype=torch.float64)
            for j in order(site, head, i, 7, itself=True):
                beta = 1 / (1 + torch.exp(-scores[:, head, i, j, None]))
                wanted[:, head, i] += beta * left * v[:, head, j]
                left = left * (1 - beta)
            wanted[:, head, i] += left * e.vector[1, head, 0]
    torch.testing.assert_close(o, wanted)


def test_what_is_left_is_that_of_before_dropout() -> None:
    e, (q, k, v) = StickBreaking(dims("cross"), remainder_vector=True).double(), qkv(7, dims())
    assert e.vector is not None
    torch.nn.init.ones_(e.vector)
    context = pass_over(7, "cross")
    p = e.normalise(q @ k.mT, 0, context)
    o = e.outputs(v, q, torch.zeros_like(p), 0, context)
    torch.testing.assert_close(o - v, (1 - p.sum(-1, keepdim=True)).expand_as(v))


def test_long_sticks_keep_their_digits_and_gradients() -> None:
    """600 shares of one half: the last is 2^-600, which no float32 product of them could tell."""

    def weights(e: Tensor) -> Tensor:
        return StickBreaking(dims("cross")).normalise(e, 0, pass_over(600, "cross"))

    last = weights(torch.zeros(1, 2, 600, 600, dtype=torch.float64))[0, 0, 0]
    torch.testing.assert_close(last.log2(), -torch.arange(600, 0, -1, dtype=torch.float64))
    extreme = torch.full((1, 2, 600, 600), 1e4).requires_grad_()
    weights(torch.where(torch.arange(600) % 2 == 0, extreme, -extreme)).sum().backward()
    assert extreme.grad is not None and extreme.grad.isfinite().all()


N = 9
Numbers = list[list[float]]


def rows_of(site: str, i: int) -> range:
    return range(i + 1 if site == "decoder" else N)


def windowed(q: Tensor, k: Tensor, v: Tensor, site: str, size: int) -> Tensor:
    """Outputs [rows, heads, n, head_dim]: each query has a softmax over the keys near it."""
    outputs = []
    for i in range(N):
        near = [j for j in rows_of(site, i) if abs(j - i) <= size]
        products = [(q[:, :, i] * k[:, :, j]).sum(-1) / math.sqrt(q.shape[-1]) for j in near]
        shares = torch.stack(products).softmax(0)
        outputs.append(sum(p[..., None] * v[:, :, j] for p, j in zip(shares, near, strict=True)))
    return torch.stack(outputs, 2)


def densities(site: str, head: int, offset: float, std: float, ratio: float = 1.0) -> Numbers:
    centre = -offset if head == 0 else {"encoder": offset, "decoder": 0.0, "cross": offset}[site]
    p = [[0.0] * N for _ in range(N)]
    for i in range(N):
        for j in rows_of(site, i):
            z = (j - (ratio * i + centre)) / std
            p[i][j] = math.exp(-0.5 * z * z) / (std * math.sqrt(2 * math.pi))
    return p


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_windows_equal_a_softmax_over_near_keys(site: str, size: int) -> None:
    e, (q, k, v) = SlidingWindow(dims(site), size).double(), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, k, v)]
    wanted = windowed(q, k, v, site, size)
    _, _, o = attend(e, q, k, v, pass_over(N, site), layer=1)
    torch.testing.assert_close(o, wanted)
    found, loops = (torch.autograd.grad(t.square().sum(), inputs) for t in (o, wanted))
    torch.testing.assert_close(found, loops)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(("offset", "std"), [(1.0, 1.0), (2.5, 0.7)])
def test_weights_are_densities_whatever_the_words(site: str, offset: float, std: float) -> None:
    e, (q, k, v) = Gaussian(dims(site), offset, std).double(), qkv(N, dims())
    q.requires_grad_(), v.requires_grad_()
    _, p, o = attend(e, q, k, v, pass_over(N, site), layer=1)
    wanted = [densities(site, head, offset, std) for head in range(2)]
    torch.testing.assert_close(p, torch.tensor([wanted] * 2, dtype=torch.float64))
    o.sum().backward()
    assert q.grad is None and v.grad is not None
    torch.testing.assert_close(v.grad, p.sum(2)[..., None].expand_as(v))


@pytest.mark.parametrize("ratio", [1.0, 1.25])
def test_across_the_centre_follows_the_source(ratio: float) -> None:
    e, (q, k, v) = Gaussian(dims("cross"), 1.5, 0.8, ratio).double(), qkv(N, dims())
    wanted = [densities("cross", head, 1.5, 0.8, ratio) for head in range(2)]
    _, p, _ = attend(e, q, k, v, pass_over(N, "cross"))
    torch.testing.assert_close(p, torch.tensor([wanted] * 2, dtype=torch.float64))
    assert e.relative == (ratio == 1)
    within = Gaussian(dims("encoder"), 1.5, 0.8, ratio)
    assert within.relative and within.ratio == 1  # one text has one count
