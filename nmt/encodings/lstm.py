"""Rosendahl et al. (2019), section 3.3: a recurrent layer tells the order of the words."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Positions


class Lstm(Encoding):
    """Puts an LSTM between embeddings and first layer, bidirectional in the encoder.

    The paper gives neither size nor projection, only 20 % more parameters; 1024 units per
    direction, projected to the model's width where the widths differ, give that at base size.
    """

    relative: ClassVar[bool] = True

    def __init__(self, dims: Dims, positions: Positions | None = None, hidden: int = 1024) -> None:
        super().__init__(dims, positions)
        if hidden < 1:
            raise ValueError(f"hidden={hidden}: must be at least 1")
        both = dims.site == "encoder"
        self.lstm = nn.LSTM(dims.dim, hidden, batch_first=True, bidirectional=both)
        width = hidden * (2 if both else 1)
        self.out = nn.Linear(width, dims.dim) if width != dims.dim else nn.Identity()

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Replace x [batch, query, dim] by the projected states of the LSTM."""
        if context.site == "encoder":
            return self.out(self._both_ways(x, context.lengths))
        if context.state is None:
            return self.out(self.lstm(x)[0])
        return self.out(self._continue(x, context.state))

    def _both_ways(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Packed, or the backward direction would start in the padding."""
        if lengths is None:
            return self.lstm(x)[0]
        lengths = lengths.clamp(min=1).cpu()  # a row without tokens cannot be packed
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return states

    def _continue(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        """Go on from the state of the last step: h and c, [batch, hidden] each."""
        h, c = f"{self.name}.h", f"{self.name}.c"
        if h not in state:
            state[h] = state[c] = x.new_zeros(x.shape[0], self.lstm.hidden_size)
        y, (state_h, state_c) = self.lstm(x, (state[h][None], state[c][None]))
        state[h], state[c] = state_h[0], state_c[0]
        return y
