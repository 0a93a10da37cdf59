"""Ding, Wang, Tao (2020), Self-Attention with Cross-Lingual Position Representation: at the input.

x_t + tanh(U PE(t) + V PE(order_t)), where order_t is the position that source word t has when the
source is put into the order of the target language. The paper gets the order from a reordering
model (BTG); here it is a column parallel to the source. This is their InXL; HeadXL is missing.

U and V are dim x dim without bias, so the order of sines and cosines in PE makes no difference.
The formula is reconstructed from surveys and summaries; the paper's own text was not at hand.
"""

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.context import Positions
from nmt.encodings.positions_columns import ColumnPositions
from nmt.encodings.sinusoids import frequencies, sinusoids


class XlPe(Encoding):
    """Adds a fusion of a word's positions in text and translation to the embeddings: 2 dim^2.

    All pieces of a word have its position in the translation. Encoder only.
    """

    sites = ("encoder",)  # columns are parallel to the source
    zeros = ("fusion",)

    def __init__(self, dims: Dims, order: str = "order") -> None:
        super().__init__(dims)
        self.second: Positions = ColumnPositions(order)
        self.columns |= {order}
        self.fusion = Fusion(dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the fusion to x [batch, query, dim]."""
        second = self.second.assign(context.query_positions, context)
        return x + self.fusion(context.query_positions, second).to(x.dtype)


class Fusion(nn.Module):
    """Two matrices for two positions of each token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.first = nn.Linear(dim, dim, bias=False)
        self.second = nn.Linear(dim, dim, bias=False)
        frequencies(dim)  # refuses an odd width at once
        for linear in (self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Positions [batch | 1, length] of two kinds -> [batch, length, dim]."""
        dtype = self.first.weight.dtype
        a, b = (sinusoids(p, self.dim).to(dtype) for p in (first, second))
        return torch.tanh(self.first(a) + self.second(b))
