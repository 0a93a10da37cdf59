"""Shaw, Uszkoreit, Vaswani (2018), Self-Attention with Relative Position Representations.

e_ij = q_i . (k_j + r^K[clip(j - i)]) / sqrt(head_dim);  o_i = sum_j p_ij (v_j + r^V[clip(j - i)]),
clip to [-tau, tau]; Rosendahl et al. 2019, eq. 3-7, with tau = 16.
"""

from typing import ClassVar

from torch import Tensor

from nmt.encodings.base import Dims, Encoding, by_query, sum_by_row
from nmt.encodings.context import Context, Positions


class Relative(Encoding):
    """Learns one key vector and one value vector for every distance in [-tau, tau].

    Heads share the vectors unless per_head, layers never do: 2 (2 tau + 1) head_dim per layer.
    """

    relative: ClassVar[bool] = True
    needs_integers: ClassVar[bool] = True
    key_table: Tensor | None  # [layers | 1, heads | 1, 2 tau + 1, head_dim]
    value_table: Tensor | None

    def __init__(
        self,
        dims: Dims,
        positions: Positions | None = None,
        tau: int = 16,
        key: bool = True,
        value: bool = True,
        per_head: bool = False,
    ) -> None:
        super().__init__(dims, positions)
        if tau < 0:
            raise ValueError(f"tau={tau}: must be at least 0")
        if not (key or value):
            raise ValueError("key=false and value=false: nothing is left to learn")
        self.tau = tau
        rows = 2 * tau + 1
        self.key_table = self.table(rows, dims.head_dim, per_head=per_head) if key else None
        self.value_table = self.table(rows, dims.head_dim, per_head=per_head) if value else None

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . r^K of each distance: one product with all rows, then a gather."""
        if self.key_table is None:
            return s
        by_distance = q @ self.pick(self.key_table, layer).mT.to(q.dtype)  # [.., query, row]
        return s + by_query(by_distance, context.clipped(self.tau))

    def values(self, p: Tensor, layer: int, context: Context) -> Tensor | None:
        """Add r^V of each distance, weighted by the attention that the distance got."""
        if self.value_table is None:
            return None
        rows = 2 * self.tau + 1
        by_distance = sum_by_row(p, context.clipped(self.tau), rows)  # [.., query, row]
        return by_distance @ self.pick(self.value_table, layer).to(p.dtype)
