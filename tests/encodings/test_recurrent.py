"""GRU, LSTM, RR-Transformer and convolution: explicit recurrences and sums, states, padding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.recurrence.convolution import Convolution
from nmt.encodings.recurrence.gru import Gru
from nmt.encodings.recurrence.lstm import Lstm
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


@pytest.mark.parametrize(
    "make, options, names",
    [
        (Gru, {}, {"Gru.h": (2, 8)}),
        (Gru, {"hidden": 5}, {"Gru.h": (2, 5)}),
        (Lstm, {"hidden": 5}, {"Lstm.h": (2, 5), "Lstm.c": (2, 5)}),
        (Convolution, {"width": 5}, {"Convolution.inputs": (2, 4, 8)}),
        (Convolution, {"depthwise": True}, {"Convolution.inputs": (2, 2, 8)}),
    ],
)
def test_states_are_carried(
    make: type[Encoding], options: dict[str, int], names: dict[str, tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    e = make(dims("decoder"), **options)
    x = torch.randn(2, 9, 8)
    whole = e.embed(x, pass_over(9, "decoder"))
    state: dict[str, Tensor] = {}
    at = torch.arange(9)[None]
    parts = [
        e.embed(x[:, a:b], Context("decoder", at[:, a:b], at[:, :b], at[:, a:b], state=state))
        for a, b in ((0, 1), (1, 2), (2, 7), (7, 9))
    ]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-6)
    assert {name: tuple(t.shape) for name, t in state.items()} == names


def test_lstm_reads_padded_rows_from_their_ends() -> None:
    torch.manual_seed(0)
    e = Lstm(dims(), hidden=5)
    x = torch.randn(2, 7, 8)
    both = e.embed(x, padded(7, [7, 4]))
    alone = e.embed(x[1:, :4], padded(4, [4]))
    assert torch.allclose(both[1:, :4], alone, atol=1e-6)
    assert not torch.allclose(e.embed(x, pass_over(7))[1, :4], alone[0], atol=1e-3)
    assert set(e.state_dict()) == {
        *(f"lstm.{kind}_l0{way}" for way in ("", "_reverse")
          for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        "out.weight", "out.bias",
    }  # fmt: skip


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
