"""What is added to embeddings: golden numbers, digits, ratios of a length, infused positions."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.encodings.attention.position_infused import PositionInfused
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, with_positions
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.learned import Learned
from nmt.encodings.input.lrpe import LengthRatio
from nmt.encodings.positions import Remaining
from nmt.encodings.registry import create
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.site import SiteEncodings
from nmt.model.layers import Attention
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over, pe


def test_golden_numbers() -> None:
    one, hundred = sinusoids(torch.tensor([1, 100]), 512)
    wanted = torch.tensor([0.841471, 0.540302, 0.821856, 0.569695, 0.801962, 0.597375])
    assert torch.allclose(one[:6], wanted, atol=1e-6)
    wanted = torch.tensor([-0.506366, 0.862319, 0.797542, -0.603263])
    assert torch.allclose(hundred[:4], wanted, atol=1e-6)
    assert torch.allclose(hundred[-2:], torch.tensor([0.010366, 0.999946]), atol=1e-6)
    other = sinusoids(torch.tensor([1]), 512, "halves", "tensor2tensor")[0]
    assert torch.allclose(other[:3], torch.tensor([0.841471, 0.821779, 0.801805]), atol=1e-6)
    assert torch.allclose(other[256:258], torch.tensor([0.540302, 0.569807]), atol=1e-6)


def test_learned_positions_may_be_clipped() -> None:
    at = torch.arange(6)[None]
    clipped = Learned(Dims("encoder", 1, 1, 8, 8), size=5, beyond="clip")
    x = clipped.embed(torch.zeros(1, 6, 8), Context("encoder", at, at, at))
    assert clipped.max_length(False) is None and torch.equal(x[0, 5], x[0, 4])


def added_at(e: Encoding, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What `embed` adds to zeros: [n, dim]."""
    c = with_positions(pass_over(n, rows=1), e.positions)
    return e.embed(torch.zeros(1, n, e.dims.dim, dtype=dtype), c)[0]


def test_frozen_positions_are_saved_and_not_learnt() -> None:
    e = Learned(dims(), size=5, trainable=False)
    assert not list(e.parameters()) and not e.zero_initialise()
    assert list(e.state_dict()) == ["weight"]
    assert torch.equal(added_at(e, 5), e.weight) and e.weight.abs().sum() > 0


def test_positions_far_apart() -> None:
    at = {"index": {"step": 1000}}
    (e,) = create({"mvpe": {"use": "absolute", "at": at}}, dims(head_dim=256))
    far = added_at(e, 200, torch.float64)
    for t in (1, 100, 199):
        assert torch.allclose(far[t], pe(1000 * t, 512), rtol=0, atol=1e-7)


def attention(width: int, heads: int) -> Attention:
    torch.manual_seed(0)
    return Attention(width, heads, 0.0).double()


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_infused_attention_equals_the_formula_in_two_loops(site: str) -> None:
    heads, head_dim, n, m = 2, 4, 6, (9 if site == "cross" else 6)
    f = attention(8, heads)
    x = torch.randn(1, n, 8, dtype=torch.float64)
    y = torch.randn(1, m, 8, dtype=torch.float64) if site == "cross" else x
    c = pass_over(n, site, rows=1)
    if site == "cross":
        there = torch.arange(m)[None]
        c = Context(site, torch.arange(n)[None], there, there)
    got = f(x, y, 0, (SiteEncodings([PositionInfused(dims(site))]), c))
    wanted = torch.zeros(n, 8, dtype=torch.float64)
    for h in range(heads):
        part = slice(h * head_dim, (h + 1) * head_dim)
        for i in range(n):
            logits, v = [], []
            for j in range(i + 1 if site == "decoder" else m):
                q = f.query(x[0, i] + pe(i, 8))[part]
                logits.append(q @ f.key(y[0, j] + pe(j, 8))[part] / 2)
                v.append(f.value(y[0, j])[part])
            p = torch.stack(logits).float().softmax(0).double()  # as attention does
            wanted[i, part] = p @ torch.stack(v)
    assert torch.allclose(got[0], f.out(wanted), atol=1e-6)


DIMS = Dims("decoder", 1, 2, 8, 4)


def context(n: int, *lengths: int, training: bool = False) -> Context:
    at = torch.arange(n)[None]
    return Context(
        "decoder", at, at, at, rows=len(lengths), lengths=torch.tensor(lengths), training=training
    )


def added(e: Absolute | LengthRatio, c: Context) -> Tensor:
    x = torch.zeros(c.rows, c.query_positions.shape[1], 8)
    return e.embed(x, with_positions(c, e.positions))


def test_ratio_in_loops() -> None:
    got = added(LengthRatio(DIMS), context(7, 5, 9, 1))
    for row, n in enumerate([5, 9, 2]):  # a length of 1 counts as 2
        for t in range(7):
            for b in range(4):
                angle = t / n ** (2 * b / 8)
                assert float(got[row, t, 2 * b]) == pytest.approx(math.sin(angle), abs=1e-6)
                assert float(got[row, t, 2 * b + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_noise_is_for_training_and_within_its_bounds() -> None:
    lengths = [20] * 4000
    still = Remaining(3).assign(torch.arange(1), context(1, *lengths))
    assert (still == 20).all()
    assert Remaining().assign(torch.arange(4)[None], context(4, 10)).tolist() == [[10, 9, 8, 7]]
    c = context(2, *lengths, training=True)
    drawn = Remaining(3).assign(torch.arange(1)[None], c)
    assert sorted(set(drawn.flatten().tolist())) == list(range(17, 24))
    counts = torch.bincount(drawn.flatten() - 17)
    assert counts.min() > 4000 / 7 * 0.8  # evenly
    again = Remaining(3).assign(torch.arange(1)[None], c)
    assert torch.equal(drawn, again)  # one draw per sentence and pass
    assert not torch.equal(added(LengthRatio(DIMS, 3), c), added(LengthRatio(DIMS), c))


@pytest.mark.parametrize("option", ["ldpe", "lrpe"])
def test_decoders_must_be_told_a_length(
    option: str, tiny: Callable[..., Transformer], ids: Callable[..., Tensor]
) -> None:
    model = tiny(f"encoding={option}")
    assert model.needs_lengths
    with pytest.raises(ValueError, match="desired length"):
        model.start(ids(2, 5))
    ten, twelve = (
        model.step(ids(2, 1)[:, 0], model.start(ids(2, 5), None, torch.tensor([n, n])))
        for n in (10, 12)
    )
    if option == "ldpe":
        assert not torch.allclose(ten, twelve)
    else:  # the first position is 0 whatever the length
        assert torch.allclose(ten, twelve)
