"""GRU, LSTM, RR-Transformer and convolution: explicit recurrences and sums, states, padding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.context import Context
from nmt.encodings.recurrence.convolution import Convolution
from nmt.encodings.recurrence.gru import Gru
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over

Make = Callable[..., Transformer]


def padded(n: int, lengths: list[int], site: str = "encoder") -> Context:
    c = pass_over(n, site, rows=len(lengths))
    c.lengths = torch.tensor(lengths)
    return c


def recurrence(gru: nn.GRU, x: Tensor, suffix: str = "") -> Tensor:
    """Cho et al. 2014 with the reset gate after the product, as in cuDNN: x [n, dim]."""
    w_x, w_h, b_x, b_h = (
        getattr(gru, f"{name}_l0{suffix}")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    h, states = x.new_zeros(gru.hidden_size), []
    for x_t in x:
        r_x, z_x, n_x = (w_x @ x_t + b_x).chunk(3)
        r_h, z_h, n_h = (w_h @ h + b_h).chunk(3)
        r, z = (r_x + r_h).sigmoid(), (z_x + z_h).sigmoid()
        h = (1 - z) * (n_x + r * n_h).tanh() + z * h
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("site, both", [("encoder", False), ("encoder", True), ("decoder", True)])
def test_gru_equals_its_recurrence(site: str, both: bool) -> None:
    torch.manual_seed(0)
    e = Gru(dims(site), bidirectional=both).double()
    x, lengths = torch.randn(3, 7, 8, dtype=torch.float64), [7, 4, 1]
    got = e.embed(x, padded(7, lengths, site))
    for row, n in enumerate(lengths):
        wanted = recurrence(e.gru, x[row, :n])
        if site == "encoder" and both:
            back = recurrence(e.gru, x[row, :n].flip(0), "_reverse").flip(0)
            wanted = e.out(torch.cat([wanted, back], -1))
        assert torch.allclose(got[row, :n], wanted, atol=1e-12)
    assert isinstance(e.out, nn.Linear if site == "encoder" and both else nn.Identity)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_convolution_equals_the_formula_in_two_loops(site: str, depthwise: bool) -> None:
    torch.manual_seed(0)
    e = Convolution(dims(site), width=5, depthwise=depthwise).double()
    x, lengths = torch.randn(2, 9, 8, dtype=torch.float64), [9, 6]
    got = e.embed(x, padded(9, lengths, site))
    for row, n in enumerate(lengths):
        for t in range(n):
            wanted = x[row, t]
            for tap, offset in enumerate(range(-2, 3) if site == "encoder" else range(-4, 1)):
                if 0 <= t + offset < n:
                    w = e.conv.weight[:, :, tap]
                    near = x[row, t + offset]
                    wanted = wanted + (w[:, 0] * near if depthwise else w @ near)
            assert torch.allclose(got[row, t], wanted, atol=1e-12)
