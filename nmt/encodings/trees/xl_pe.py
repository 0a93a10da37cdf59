"""Ding, Wang, Tao (2020), Self-Attention with Cross-Lingual Position Representation: at the input.

x_t + tanh(U PE(t) + V PE(order_t)), where order_t is the place that source word t has when the
source is put into the order of the target language. The paper gets the order from a reordering
model (BTG); here it is a column parallel to the source. This is their InXL; HeadXL is missing.
"""

from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.positions_columns import ColumnPositions
from nmt.encodings.trees.fusion import Fusion


class XlPe(Encoding):
    """Adds a fusion of place and place in the translation to the embeddings: 2 dim^2 parameters.

    All pieces of a word have its place in the translation. Encoder only.
    """

    sites = ("encoder",)  # columns are parallel to the source
    zeros = ("fusion",)

    def __init__(self, dims: Dims, order: str = "order") -> None:
        place = ColumnPositions(order)
        super().__init__(dims)
        self.columns |= place.columns
        self.order = place
        self.fusion = Fusion(dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the fusion to x [batch, query, dim]."""
        return self.fusion(x, context.queries, self.order.assign(context.queries, context))
