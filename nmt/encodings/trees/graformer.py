"""Schmitt, Ribeiro, Dufter, Gurevych, Schuetze (2021), Modeling Graph Structure via Relative
Position for Text Generation from Knowledge Graphs (Graformer).

e_ij = q_i . k_j / sqrt(head_dim) + b_h[R_ij], R the length of the shortest directed path: positive
from i to j, negative from j to i, a number of its own where there is neither. Nothing else tells
the encoder where tokens stand. The graph here is the dependency tree of the source, its edges lead
from heads to what hangs on them, and the pieces of a word are one node. (The authors' nodes of
several pieces have rows for the distances within; their loss for monotonous rows is left out.)
"""

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.bias_table import scalars
from nmt.encodings.positions_columns import Graph


class Graformer(Encoding):
    """Learns a number per head and path length, the same in all layers: 2 (longest + 1) heads.

    `longest` belongs to the positions, at={graph: {longest: ...}}; longer paths count as that.
    """

    relative = True
    position_type = "integer"
    distances_only = True
    zeros = ("weight",)

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        if not isinstance(dims.positions, Graph):
            raise ValueError("needs path lengths: at={graph: {heads: heads, longest: 8}}")
        self.longest = dims.positions.longest
        table = torch.empty(dims.heads, 2 * (self.longest + 1))
        self.weight = nn.Parameter(table.uniform_(-1, 1))  # as in the authors' code

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """b_h of each path length: [batch, heads, query, key]; the last row: no path."""

        def make() -> Tensor:
            row = context.delta.clamp(-self.longest, self.longest + 1) + self.longest
            return scalars(self.weight, row)

        return context.once(("graformer", id(self)), make)
