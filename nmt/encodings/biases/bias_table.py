"""Dufter, Schmitt, Schuetze (2022), Position Information in Transformers: scalar biases.

e_ij = q_i . k_j / sqrt(head_dim) + b, where b is a number learned for each pair of positions,
b[i, j] (reference=absolute), or for each distance, b[j - i] (reference=relative). The simplest
learned encodings inside attention: T5, TUPE, KERPLE and ALiBi tie the entries of such a table.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding

Reference = Literal["absolute", "relative"]


class BiasTable(Encoding):
    """Learns one number for every pair of positions, or for every distance.

    Per layer and head, unless shared: longest^2 numbers (absolute; longer sequences are refused)
    or 2 longest - 1 (relative; distances beyond longest - 1 count as longest - 1). They start at
    zero, as attention without positions.
    """

    position_type = "integer"
    zeros = ("weight",)
    weight: nn.Parameter  # [layers | 1, heads | 1, rows, 1]

    def __init__(
        self,
        dims: Dims,
        reference: Reference = "relative",
        longest: PositiveInt = 256,
        per_layer: bool = True,
        per_head: bool = True,
    ) -> None:
        super().__init__(dims)
        self.relative = self.distances_only = relative = reference == "relative"
        self.num_positions = None if relative else longest  # distances are clipped instead
        self.longest = longest
        rows = 2 * longest - 1 if relative else longest**2
        self.weight = self.make_table(rows, 1, per_layer=per_layer, per_head=per_head)
        self.zero_initialise()

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """b[j - i] or b[i, j]: [batch | 1, heads | 1, query, key]."""
        index = context.clipped(self.longest - 1) if self.relative else self._pairs(context)
        return scalars(self.pick(self.weight, layer)[..., 0], index)

    def _pairs(self, context: Context) -> Tensor:
        """Row numbers i longest + j: [batch | 1, query, key]."""
        i, j = context.query_positions, context.key_positions
        return i[:, :, None] * self.longest + j[:, None, :]


def scalars(table: Tensor, index: Tensor) -> Tensor:
    """Read table [heads | 1, row] at index [batch | 1, query, key]: [.., heads | 1, query, key]."""
    return F.embedding(index, table.T).permute(0, 3, 1, 2)
