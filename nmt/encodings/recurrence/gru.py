"""Neishi, Yoshinaga (2019), On the Relation between Position Information and Sentence Length in
Neural Machine Translation: the RNN-Transformer.

One GRU layer between embeddings and first layer tells the order of the words; its state does not
know how far it has come, which makes the information relative. With Shaw's vectors on top it is
their RR-Transformer (option rr_transformer).
"""

from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.recurrence.lstm import hidden_states, output_projection


class Gru(Encoding):
    """Puts a GRU between embeddings and first layer: 6 (dim^2 + dim) per stack for hidden = dim.

    From left to right also in the encoder, as in the authors' code; bidirectional adds the other
    direction and a projection there. Their model leaves out the factor sqrt(dim) of the embeddings
    and has five decoder layers and six encoder layers; model.decoder_layers=5 gives the latter.
    """

    relative = True
    position_type = "none"

    def __init__(
        self, dims: Dims, hidden: PositiveInt | None = None, bidirectional: bool = False
    ) -> None:
        super().__init__(dims)
        hidden = dims.dim if hidden is None else hidden
        both = bidirectional and dims.site == "encoder"  # a decoder must not see its future
        self.gru = nn.GRU(dims.dim, hidden, batch_first=True, bidirectional=both)
        self.out = output_projection(self.gru, dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Replace x [batch, query, dim] by the projected states of the GRU."""
        return self.out(hidden_states(self.gru, x, context, self.name))
