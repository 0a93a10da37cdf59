"""Gehring et al. (2017), Convolutional Sequence to Sequence Learning: learnt positions."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Positions


class Learned(Encoding):
    """Adds a learnt vector for each of the first `size` positions to the embeddings."""

    needs_integers: ClassVar[bool] = True

    def __init__(
        self,
        dims: Dims,
        positions: Positions | None = None,
        size: int = 1024,
        beyond: str = "refuse",
    ) -> None:
        super().__init__(dims, positions)
        if size < 1:
            raise ValueError(f"size={size}: must be at least 1")
        if beyond not in ("refuse", "clip"):
            raise ValueError(f"beyond={beyond}: choose refuse or clip (to the last position)")
        self.size = size
        self.beyond = beyond
        self.weight = nn.Parameter(torch.randn(size, dims.dim) * dims.dim**-0.5)  # [size, dim]

    @property
    def limit(self) -> int | None:
        """The table's size, unless positions beyond it are clipped to its last row."""
        return None if self.beyond == "clip" else self.size

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the row of each position to x [batch, query, dim]."""
        at = context.queries
        if self.beyond == "clip":
            at = at.clamp(max=self.size - 1)
        elif int(at.max()) >= self.size:
            raise ValueError(f"position {int(at.max())} is beyond the {self.size} learnt ones")
        return x + self.weight[at].to(x.dtype)
