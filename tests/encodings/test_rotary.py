"""Rotary and xPos against complex numbers in plain loops."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.encodings import limits
from nmt.encodings.base import Encoding
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.rotary.xpos import Xpos
from tests.encodings.attending import attend, dims, pass_over, qkv


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
    assert limits.max_length(e, training=False) == 32
    assert str(limits.why_too_short(e, 33)).endswith("to 31 in training; give 64 x scale_base=33")
    assert limits.max_length(Xpos(dims("encoder"), scale_base=0.5), training=False) is None


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Rotary(dims(head_dim=3)), "even width, not 3"),
        (lambda: Rotary(dims(), partial=0.25), "partial=0.25: must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=-0.5), "partial=-0.5: must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=1e15), "must leave an even number of 4"),
        (lambda: Rotary(dims(), partial=1.5), "partial=1.5: must leave an even number of 4"),
        (lambda: Rotary(dims(), factor=2.0), "factor=2.0: the factor must be 1 with scaling=none"),
        (lambda: Rotary(dims(), scaling="ntk"), "scaling=ntk, factor=1.0: .* greater with linear"),
        (lambda: Rotary(dims(), scaling="linear"), "scaling=linear, factor=1.0: .* greater with"),
        (lambda: Rotary(dims(head_dim=2), scaling="ntk", factor=2.0), "at least 4 components"),
    ],
)
def test_refuses_what_means_nothing(make: Callable[[], Encoding], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
