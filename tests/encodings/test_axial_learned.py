"""Axial and learned tables, and sinusoids of distant or infused positions."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.attention.position_infused import PositionInfused
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.input.axial import Axial
from nmt.encodings.input.learned import Learned
from nmt.encodings.input.universal import Universal
from nmt.encodings.limits import max_length
from nmt.encodings.passes import with_positions
from nmt.encodings.positions import Index
from nmt.encodings.registry import create
from nmt.encodings.sinusoids import sinusoids
from nmt.encodings.site import Encodings
from nmt.model.layers import Attention
from tests.encodings.attending import dims, pass_over, pe


def added(e: Encoding, n: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What `embed` adds to zeros: [n, dim]."""
    c = with_positions(pass_over(n, rows=1), e.positions)
    return e.embed(torch.zeros(1, n, e.dims.dim, dtype=dtype), c)[0]


def test_axial_is_a_row_per_digit() -> None:
    e = Axial(dims(), t1=3, t2=4, first=2)
    x = added(e, 12)
    for t in range(12):
        assert torch.equal(x[t, :2], e.segments[t // 4]) and torch.equal(x[t, 2:], e.places[t % 4])
    assert max_length(e, False) == 12 and sum(p.numel() for p in e.parameters()) == 3 * 2 + 4 * 6


def test_axial_refuses_an_empty_half() -> None:
    with pytest.raises(ValueError, match="first=8: must be below the width 8"):
        Axial(dims(), first=8)


def test_frozen_positions_are_saved_and_not_learnt() -> None:
    e = Learned(dims(), size=5, trainable=False)
    assert not list(e.parameters()) and not e.zero_initialise()
    assert list(e.state_dict()) == ["weight"]
    assert torch.equal(added(e, 5), e.weight) and e.weight.abs().sum() > 0


def entry(name: str, **options: object) -> Encoding:
    return create({name: options}, dims(head_dim=256))[0]


def test_mvpe() -> None:
    far = added(entry("mvpe", use="absolute", at={"index": {"step": 1000}}), 200, torch.float64)
    golden = torch.tensor([0.826880, 0.562379, -0.191485, -0.981495], dtype=torch.float64)
    assert torch.allclose(far[1, :4], golden, atol=1e-6)
    for t in (1, 100, 199):
        assert torch.allclose(far[t], pe(1000 * t, 512), rtol=0, atol=1e-7)
    near = added(entry("mvpe", use="absolute", at={"index": {"step": 1}}), 200)
    assert torch.equal(near, added(entry("absolute"), 200))


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
    got = f(x, y, 0, Encodings([PositionInfused(dims(site))]), c)
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


def test_universal_adds_both_sinusoids() -> None:
    e = Universal(dims(positions=Index(start=2)), layout="halves", denominator="tensor2tensor")
    c = with_positions(pass_over(5), e.positions)
    x = e.layer(torch.zeros(2, 5, 8), 3, c)
    where = sinusoids(torch.arange(2, 7), 8, "halves", "tensor2tensor")
    when = sinusoids(torch.tensor(4), 8, "halves", "tensor2tensor")
    assert torch.equal(x[1], where + when)
