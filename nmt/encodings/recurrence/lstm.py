"""Rosendahl et al. (2019), section 3.3: a recurrent layer encodes the order of the words."""

from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.recurrence.recurrent import hidden_states, output_projection


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
