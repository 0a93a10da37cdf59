"""Shaw, Uszkoreit, Vaswani (2018), eq. 3-4, with a vector for every pair of absolute positions.

e_ij = q_i . (k_j + A^K[i, j]) / sqrt(head_dim);  o_i = sum_j p_ij (v_j + A^V[i, j]).

Shaw et al. allow any vector a_ij for the edge from i to j and then learn relative ones, which are
the special case A[i, j] = r[clip(j - i)]. This is the general case, as the survey of Dufter,
Schmitt and Schuetze (2022) counts it; it has not been evaluated in print.
"""

import torch
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class ShawAbsolute(Encoding):
    """Learns a key vector and a value vector for every pair (i, j) of positions below `longest`.

    Heads share the vectors, layers do not: 2 longest^2 head_dim per layer.
    """

    position_type = "integer"
    zeros = ("key_table", "value_table")
    key_table: Tensor | None  # [layers, 1, longest x longest, head_dim]; row i longest + j
    value_table: Tensor | None

    def __init__(
        self, dims: Dims, longest: PositiveInt = 101, key: bool = True, value: bool = True
    ) -> None:
        super().__init__(dims)
        self.num_positions = longest
        self.reads_queries_or_keys = key
        if not (key or value):
            raise ValueError("key=false and value=false: nothing is left to learn")
        self.longest = longest
        self.key_table = self.make_table(longest**2, dims.head_dim) if key else None
        self.value_table = self.make_table(longest**2, dims.head_dim) if value else None

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . A^K[i, j]; sentences with the same positions share the [query, key] slice."""
        if self.key_table is None:
            return s
        a = self._vectors(self.key_table, layer, context).to(q.dtype)
        if len(a) == 1:
            return s + torch.einsum("bhqd,qkd->bhqk", q, a[0])
        return s + torch.einsum("bhqd,bqkd->bhqk", q, a)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add sum_j p_ij A^V[i, j]."""
        if self.value_table is None or p is None:
            return o
        a = self._vectors(self.value_table, layer, context).to(p.dtype)
        if len(a) == 1:
            return o + torch.einsum("bhqk,qkd->bhqd", p, a[0])
        return o + torch.einsum("bhqk,bqkd->bhqd", p, a)

    def _vectors(self, table: Tensor, layer: int, context: Context) -> Tensor:
        """A[i, j] of each query i and key j: [batch | 1, query, key, head_dim]."""
        index = context.once(("shaw_absolute", self.longest), lambda: self._index(context))
        return self.pick(table, layer)[0][index]

    def _index(self, context: Context) -> Tensor:
        """The row of each pair [batch | 1, query, key]."""
        i, j = context.query_positions, context.key_positions
        return i[:, :, None] * self.longest + j[:, None, :]
