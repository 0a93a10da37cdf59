"""Rotary and xPos against complex numbers and plain loops."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.rotary import Rotary
from nmt.encodings.xpos import Xpos
from tests.encodings.attending import attend, dims, pass_over, qkv


def turned(e: Rotary, q: Tensor, k: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    return e.project(lambda *x: (q, k, k), q, k, k, 0, pass_over(n, e.dims.site))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_is_a_product_of_complex_numbers(layout: Any) -> None:
    e = Rotary(dims(head_dim=8), layout=layout)
    q = qkv(7, e.dims)[0]
    got = turned(e, q, q, 7)[0]
    w = 10000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    turn = torch.polar(torch.ones(7, 4, dtype=torch.float64), torch.arange(7)[:, None] * w)
    real, imaginary = (q[..., 0::2], q[..., 1::2]) if layout == "interleaved" else q.chunk(2, -1)
    z = torch.complex(real, imaginary) * turn
    parts = [z.real, z.imag]
    wanted = torch.stack(parts, -1).flatten(-2) if layout == "interleaved" else torch.cat(parts, -1)
    assert torch.allclose(got, wanted, atol=1e-12)


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
def test_rotary_in_loops(options: dict[str, float], w: list[float]) -> None:
    """ntk: the base grows by 8^(8/6), so pair b turns 8^(b/3) times slower."""
    e = Rotary(dims(head_dim=8), **options)  # type: ignore[arg-type]
    q, k, v = qkv(9, e.dims)
    got = attend(e, q, k, v, pass_over(9))[0]
    wanted = scores_in_loops(q, k, w, [1.0] * 4, 0) * 8**-0.5
    assert torch.allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize("site, share", [("decoder", 1 / 16), ("encoder", 0)])
def test_xpos_in_loops(site: str, share: float) -> None:
    e = Xpos(dims(site, head_dim=8), scale_base=16.0)
    q, k, v = qkv(9, e.dims)
    got = attend(e, q, k, v, pass_over(9, site))[0]
    zeta = [(2 * b / 8 + 0.4) / 1.4 for b in range(4)]
    wanted = scores_in_loops(q, k, [1, 0.1, 0.01, 0.001], zeta, share) * 8**-0.5
    assert torch.allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_xpos_without_decay_is_rotary(layout: Any) -> None:
    sizes = dims("decoder", head_dim=8)
    q, k, _ = qkv(9, sizes)
    plain = turned(Rotary(sizes, layout=layout), q, k, 9)
    assert all(
        torch.allclose(a, b, atol=1e-9)
        for a, b in zip(turned(Xpos(sizes, 1e4, layout, 1e12), q, k, 9), plain, strict=True)
    )
    decaying = turned(Xpos(sizes, layout=layout, scale_base=16.0), q, k, 9)
    paired = decaying[0] @ decaying[1].mT
    q, k = _relayout(q, layout), _relayout(k, layout)
    same = turned(Xpos(sizes, scale_base=16.0), q, k, 9)
    assert torch.allclose(paired, same[0] @ same[1].mT, atol=1e-12)


def _relayout(t: Tensor, layout: Any) -> Tensor:
    """Components in the interleaved order."""
    return t if layout == "interleaved" else torch.stack(t.chunk(2, -1), -1).flatten(-2)


def test_xpos_golden() -> None:
    zeta = Xpos(dims("decoder", head_dim=64)).zeta()[[0, 1, 15, 31]]
    golden = torch.tensor([0.285714, 0.308036, 0.620536, 0.977679]).double()
    assert torch.allclose(zeta, golden, atol=1e-6)


def test_rotary_keeps_norms_and_values_and_the_first_position() -> None:
    q = qkv(7, dims())[0]
    a, b, v = turned(Rotary(dims()), q, q, 7)
    assert torch.allclose(a.norm(dim=-1), q.norm(dim=-1), atol=1e-12)
    assert torch.equal(a[:, :, 0], q[:, :, 0]) and torch.equal(v, q) and torch.equal(a, b)


def test_partial_rotary_leaves_the_rest_alone() -> None:
    q = qkv(7, dims(head_dim=16))[0]
    a = turned(Rotary(dims(head_dim=16), partial=0.25, layout="halves"), q, q, 7)[0]
    assert torch.equal(a[..., 4:], q[..., 4:]) and (a[..., :4] != q[..., :4])[:, :, 1:].all()
    wide = turned(Rotary(dims(head_dim=4), layout="halves"), q[..., :4], q[..., :4], 7)[0]
    assert torch.equal(a[..., :4], wide)


@pytest.mark.parametrize("kind", [Rotary, Xpos])
def test_large_positions_stay_apart_in_bfloat16(kind: type[Rotary]) -> None:
    at = torch.tensor([[300, 301]])
    q = torch.ones(1, 2, 2, 8, dtype=torch.bfloat16)
    e = kind(dims("decoder", head_dim=8))
    out = e.project(lambda *x: (q, q, q), q, q, q, 0, Context("decoder", at, at, at))[0]
    assert out.dtype == torch.bfloat16 and (out[0, 0, 0] - out[0, 0, 1]).abs().max() > 0.1


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Rotary(dims(head_dim=3)), "even width, not 3"),
        (lambda: Rotary(dims(), partial=0.25), "partial=0.25: must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=-0.5), "partial=-0.5: must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=1e15), "must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=1.5), "partial=1.5: must leave an even number of 4"),
        (lambda: Rotary(dims(), factor=2.0), "factor=2.0: must be 1 with scaling=none"),
        (lambda: Rotary(dims(head_dim=2), scaling="ntk", factor=2.0), "at least 4 components"),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Encoding], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
