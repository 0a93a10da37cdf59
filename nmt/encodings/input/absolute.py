"""Vaswani et al. (2017), Attention Is All You Need: sinusoidal absolute positions."""

from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import Denominator, Layout, frequencies, sinusoids


class Absolute(Encoding):
    """Adds sines and cosines of the position to the embeddings (Rosendahl 2019, eq. 1-2)."""

    def __init__(
        self, dims: Dims, layout: Layout = "interleaved", denominator: Denominator = "paper"
    ) -> None:
        super().__init__(dims)
        self.layout = layout
        self.denominator = denominator
        frequencies(dims.dim)  # refuses an odd width at once

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add PE(position) to x [batch, query, dim]."""
        table = sinusoids(context.query_positions, self.dims.dim, self.layout, self.denominator)
        return x + table.to(x.dtype)
