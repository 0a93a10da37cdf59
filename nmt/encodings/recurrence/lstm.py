"""Rosendahl et al. (2019), section 3.3: a recurrent layer encodes the order of the words."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class Lstm(Encoding):
    """Puts an LSTM between embeddings and first layer, bidirectional in the encoder.

    The paper gives neither size nor projection, only 20 % more parameters; twice the model's
    width per direction (hidden=null), projected to that width, gives that at base size.
    """

    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, hidden: PositiveInt | None = None) -> None:
        super().__init__(dims)
        hidden = 2 * dims.dim if hidden is None else hidden
        both = dims.site == "encoder"
        self.lstm = nn.LSTM(dims.dim, hidden, batch_first=True, bidirectional=both)
        self.out = output_projection(self.lstm, dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Replace x [batch, query, dim] by the projected states of the LSTM."""
        return self.out(hidden_states(self.lstm, x, context, self.name))


def hidden_states(rnn: nn.RNNBase, x: Tensor, context: Context, name: str) -> Tensor:
    """The states [batch, query, hidden x directions] of a one-layer network over x.

    While decoding it goes on from where it stopped, which context.state holds under `name`. It
    keeps the number format of its weights under autocast: rounding would add up along the
    sentence, and oneDNN has bfloat16 LSTMs for some processors only.
    """
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(next(rnn.parameters()).dtype)
        if rnn.bidirectional:
            return _bidirectional(rnn, x, context.lengths)
        if context.state is None:
            return rnn(x)[0]  # padding is on the right, after all real tokens
        return _resume(rnn, x, context.state, name)


def output_projection(rnn: nn.RNNBase, dim: int) -> nn.Module:
    """A projection of the states to the model's width; nothing where they have it."""
    width = rnn.hidden_size * (2 if rnn.bidirectional else 1)
    return nn.Linear(width, dim) if width != dim else nn.Identity()


def _bidirectional(rnn: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Packed, or the backward direction would start in the padding."""
    if lengths is None:
        return rnn(x)[0]
    lengths = lengths.clamp(min=1).cpu()  # a row without tokens cannot be packed
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=x.shape[1])
    return states


def _resume(rnn: nn.RNNBase, x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    """Go on from the last step: h, and c of an LSTM, [batch, hidden] each."""
    names = [f"{name}.h", f"{name}.c"] if isinstance(rnn, nn.LSTM) else [f"{name}.h"]
    zeros = x.new_zeros(x.shape[0], rnn.hidden_size)
    before = tuple(state.get(n, zeros)[None] for n in names)
    y, after = rnn(x, before if len(names) > 1 else before[0])
    for n, t in zip(names, after if len(names) > 1 else (after,), strict=True):
        state[n] = t[0]
    return y
