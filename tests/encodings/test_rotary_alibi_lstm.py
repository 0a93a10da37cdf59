"""Rotary against complex numbers, ALiBi against its paper's slopes, the LSTM against itself."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.alibi import Alibi, slopes_of
from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.lstm import Lstm
from nmt.encodings.rotary import Rotary


def context(n: int) -> Context:
    at = torch.arange(n)[None]
    return Context("encoder", at, at, at)


def turned(e: Rotary, q: Tensor, k: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    return e.project(lambda *x: (q, k, k), q, k, k, 0, context(n))


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotary_is_a_product_of_complex_numbers(layout: str) -> None:
    torch.manual_seed(0)
    e = Rotary(Dims("encoder", 1, 2, 16, 8), layout=layout)
    q = torch.randn(1, 2, 7, 8)
    got = turned(e, q, q, 7)[0]
    w = 10000 ** (-torch.arange(4, dtype=torch.float64) / 4)
    turn = torch.polar(torch.ones(7, 4, dtype=torch.float64), torch.arange(7)[:, None] * w)
    real, imaginary = (q[..., 0::2], q[..., 1::2]) if layout == "interleaved" else q.chunk(2, -1)
    z = torch.complex(real.double(), imaginary.double()) * turn
    parts = [z.real, z.imag]
    wanted = torch.stack(parts, -1).flatten(-2) if layout == "interleaved" else torch.cat(parts, -1)
    assert torch.allclose(got.double(), wanted, atol=1e-6)


def test_rotary_keeps_norms_and_values_and_the_first_position() -> None:
    torch.manual_seed(0)
    q = torch.randn(1, 2, 7, 8)
    a, b, v = turned(Rotary(Dims("encoder", 1, 2, 16, 8)), q, q, 7)
    assert torch.allclose(a.norm(dim=-1), q.norm(dim=-1), atol=1e-5)
    assert torch.equal(a[:, :, 0], q[:, :, 0]) and torch.equal(v, q) and torch.equal(a, b)


def test_rotary_keeps_large_positions_apart_in_bfloat16() -> None:
    at = torch.tensor([[300, 301]])
    q = torch.ones(1, 1, 2, 8, dtype=torch.bfloat16)
    e = Rotary(Dims("encoder", 1, 1, 8, 8))
    out = e.project(lambda *x: (q, q, q), q, q, q, 0, Context("encoder", at, at, at))[0]
    assert (out[0, 0, 0] - out[0, 0, 1]).abs().max() > 0.1


def test_rotary_refuses_odd_heads() -> None:
    with pytest.raises(ValueError, match="even width, not 3"):
        Rotary(Dims("encoder", 1, 1, 3, 3))


def test_alibi_slopes() -> None:
    assert slopes_of(8) == [2.0**-h for h in range(1, 9)]
    assert slopes_of(6) == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert slopes_of(3) == [0.0625, 0.00390625, 0.25]
    assert slopes_of(12)[8:] == pytest.approx([0.707107, 0.353553, 0.176777, 0.088388], abs=1e-6)
    assert all(len(slopes_of(h)) == h for h in range(1, 34))


def test_alibi_is_linear_in_the_distance() -> None:
    bias = Alibi(Dims("encoder", 1, 8, 64, 8)).bias(0, context(6))
    assert bias is not None and bias.shape == (1, 8, 6, 6)
    for h in range(8):
        for i in range(6):
            for j in range(6):
                assert bias[0, h, i, j] == -(2.0 ** -(h + 1)) * abs(i - j)


def test_alibi_under_a_causal_mask_needs_only_the_key() -> None:
    """Press et al. 2022: m j instead of -m (i - j) gives the same softmax."""
    bias = Alibi(Dims("decoder", 1, 2, 8, 4)).bias(0, context(5))
    assert bias is not None
    s = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    future = torch.ones(5, 5).triu(1).bool()
    by_key = torch.tensor(slopes_of(2))[:, None, None] * torch.arange(5.0)
    a = (s + bias).masked_fill(future, -torch.inf).softmax(-1)
    b = (s + by_key).masked_fill(future, -torch.inf).softmax(-1)
    assert torch.allclose(a, b, atol=1e-6)


def test_lstm_carries_its_state() -> None:
    torch.manual_seed(0)
    e = Lstm(Dims("decoder", 1, 1, 6, 6), hidden=5)
    x = torch.randn(2, 7, 6)
    at = torch.arange(7)[None]
    whole = e.embed(x, Context("decoder", at, at, at))
    state: dict[str, Tensor] = {}
    parts = [
        e.embed(x[:, a:b], Context("decoder", at, at, at, state=state))
        for a, b in ((0, 1), (1, 5), (5, 7))
    ]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-6)
    assert all(t.shape == (2, 5) for t in state.values()) and len(state) == 2


def test_lstm_projects_where_widths_differ() -> None:
    assert isinstance(Lstm(Dims("decoder", 1, 1, 6, 6), hidden=6).out, torch.nn.Identity)
    assert isinstance(Lstm(Dims("encoder", 1, 1, 6, 6), hidden=6).out, torch.nn.Linear)
