"""Kitaev, Kaiser, Levskaya (2020), Reformer: The Efficient Transformer: axial positions.

A learned vector per position costs t_max x dim numbers. Written with two digits, t = a t2 + b, a
position needs only a row for each digit:

    x_t + [A[t // t2] ; B[t % t2]],   A [t1, first], B [t2, dim - first],   t < t1 t2

so the first components are the same within a segment of t2 tokens, and the last ones repeat from
segment to segment.
"""

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class Axial(Encoding):
    """Adds a learned vector per segment and one per offset in it: t1 first + t2 (dim - first).

    Used once per stack. Rows start as N(0, 1 / dim) like learned positions; transformers' Reformer
    starts them all at one.
    """

    position_type = "integer"
    zeros = ("segments", "places")

    def __init__(
        self,
        dims: Dims,
        t1: PositiveInt = 32,
        t2: PositiveInt = 32,
        first: PositiveInt | None = None,
    ) -> None:
        super().__init__(dims)
        self.num_positions = t1 * t2
        first = dims.dim // 2 if first is None else first
        if first >= dims.dim:
            raise ValueError(f"first={first}: must be below the width {dims.dim}")
        self.segments = nn.Parameter(torch.randn(t1, first) * dims.dim**-0.5)  # [t1, first]
        self.places = nn.Parameter(torch.randn(t2, dims.dim - first) * dims.dim**-0.5)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add both halves to x [batch, query, dim]."""
        at, t2 = context.query_positions, len(self.places)
        halves = [self.segments[at // t2], self.places[at % t2]]
        return x + torch.cat(halves, dim=-1).to(x.dtype)
