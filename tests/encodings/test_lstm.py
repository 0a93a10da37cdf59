"""The LSTM between embeddings and first layer, against itself."""

import torch
from torch import Tensor

from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.lstm import Lstm


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
