"""Shaw, Uszkoreit, Vaswani (2018), Self-Attention with Relative Position Representations.

e_ij = q_i . (k_j + r^K[clip(j - i)]) / sqrt(head_dim);  o_i = sum_j p_ij (v_j + r^V[clip(j - i)]),
clip to [-tau, tau]; Rosendahl et al. 2019, eq. 3-7, with tau = 16.
"""

from torch import Tensor

from nmt.config.check import NonNegativeInt, PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import query_products, row_sums


class Relative(Encoding):
    """Learns one key vector and one value vector for every distance in [-tau, tau].

    Heads share the vectors unless per_head, layers never do: 2 (2 tau + 1) head_dim per layer.
    tied uses one vector as key and value (OpenNMT-py), which halves that. With tau=null
    nothing is clipped: the table has 2 longest - 1 rows, and longer sequences are refused.
    """

    relative = True
    position_type = "integer"
    distances_only = True
    tied: bool = False
    longest: int | None = None
    zeros = ("key_table", "value_table")
    key_table: Tensor | None  # [layers | 1, heads | 1, 2 tau + 1, head_dim]
    value_table: Tensor | None  # None if tied, too: the key's then serves both

    def __init__(
        self,
        dims: Dims,
        tau: NonNegativeInt | None = 16,
        key: bool = True,
        value: bool = True,
        per_head: bool = False,
        tied: bool = False,
        longest: PositiveInt | None = None,
    ) -> None:
        super().__init__(dims)
        self.longest_distance = None if longest is None else longest - 1
        self.reads_queries_or_keys = key
        self.tau = _largest_distance(tau, longest)
        if not (key or value):
            raise ValueError("key=false and value=false: nothing is left to learn")
        if tied and not (key and value):
            raise ValueError("tied=true: needs key=true and value=true, which then share a table")
        if longest is not None and self.positions.max_distance(1, True) is None:
            raise ValueError("tau=null: a column may stand any distance apart; give tau")
        self.tied, self.longest = tied, longest
        rows = 2 * self.tau + 1
        sizes = (rows, dims.head_dim, True, per_head)
        self.key_table = self.make_table(*sizes) if key else None
        self.value_table = self.make_table(*sizes) if value and not tied else None

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . r^K of each distance: one product with all rows, then a gather."""
        if self.key_table is None:
            return s
        return s.add_(query_products(q, *self._rows(self.key_table, layer, context)))

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add r^V of each distance, weighted by the attention that the distance got."""
        table = self.key_table if self.tied else self.value_table
        if table is None or p is None:
            return o
        return o + row_sums(p, *self._rows(table, layer, context))

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """Rows of the tables."""
        tables = {"keys" if not self.tied else "keys and values": self.key_table}
        tables["values"] = self.value_table
        rows = distances.clamp(-self.tau, self.tau) + self.tau
        return {role: self.pick(t, layer)[:, rows] for role, t in tables.items() if t is not None}

    def _rows(self, table: Tensor, layer: int, context: Context) -> tuple[Tensor, Tensor]:
        """The rows of a layer [heads | 1, row, head_dim] and the row of each pair of tokens.

        Of a table for all distances, which is long, only the part that the sentence needs is read.
        A decoder has no use for half of any, but to leave that out saves no time.
        """
        distance = self._max_distance(context)
        rows = self.pick(table, layer)[:, self.tau - distance : self.tau + distance + 1]
        return rows, context.clipped(distance)

    def _max_distance(self, context: Context) -> int:
        """Distances beyond count as this one."""
        if self.longest is None:
            return self.tau
        distance: int = context.once("max_distance", context.max_distance)
        if distance > self.tau:
            raise ValueError(
                f"distance {distance}: longest={self.longest} has vectors to {self.tau}"
            )
        return distance


def _largest_distance(tau: int | None, longest: int | None) -> int:
    """The largest distance that has a vector; ValueError where the options leave it open."""
    if tau is None:
        if longest is None:
            raise ValueError("tau=null: needs longest, the greatest distance plus 1")
        return longest - 1
    if longest is not None:
        raise ValueError(f"longest={longest}: only with tau=null; tau={tau} encodes any length")
    return tau
