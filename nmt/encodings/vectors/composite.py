"""Chang, Xu, Xu, Tu (2021), Convolutions and Self-Attention: re-interpreting relative positions.

e_ij = q_i . k_j / sqrt(head_dim) + f_h[x] + q_i . c^Q[x] / sqrt(head_dim)
       + k_j . c^K[-x] / sqrt(head_dim),  x = clip(j - i) to [-tau, tau].

The paper reads the positional terms as convolutions over the tokens around i: f is a lightweight
convolution with a fixed kernel per head, c^Q a dynamic one whose kernel the query makes, and c^K
one whose kernel the key makes. f and c^Q together are `encoding=[scalar_relative,relative_key]`.

tau = 8 is from memory; the paper's own text was not at hand. Its optional further convolution of
the values is not part of this.
"""

import torch
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import query_products
from nmt.encodings.vectors.distances import key_products


class Composite(Encoding):
    """Adds convolution kernels to the scores: fixed, or computed from queries or keys.

    f belongs to a head of a layer and starts at zero; c^Q and c^K belong to a layer: (2 tau + 1)
    (heads + head_dim) numbers per layer, and (2 tau + 1) head_dim more with key.
    """

    relative = True
    position_type = "integer"
    distances_only = True
    zeros = ("f", "c_q", "c_k")

    def __init__(
        self,
        dims: Dims,
        tau: NonNegativeInt = 8,
        fixed: bool = True,
        query: bool = True,
        key: bool = False,
    ) -> None:
        super().__init__(dims)
        self.reads_queries_or_keys = query or key
        if not (fixed or query or key):
            raise ValueError("fixed=false, query=false and key=false: nothing is left to learn")
        self.tau = tau
        rows = 2 * tau + 1
        # [layers, heads, row, 1], and [layers, 1, row, head_dim] twice
        self.f = self.make_table(rows, 1, per_head=True) if fixed else None
        self.c_q = self.make_table(rows, dims.head_dim) if query else None
        self.c_k = self.make_table(rows, dims.head_dim) if key else None
        if self.f is not None:
            torch.nn.init.zeros_(self.f)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add what queries and keys make of the distance to s [batch, heads, query, key]."""
        index = context.clipped(self.tau)
        if self.c_q is not None:
            s = s + query_products(q, self.pick(self.c_q, layer), index)
        if self.c_k is not None:
            s = s + key_products(k, self.pick(self.c_k, layer), 2 * self.tau - index)
        return s

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """The vectors from which queries and keys make kernels."""
        rows = distances.clamp(-self.tau, self.tau) + self.tau
        tables = {"queries": (self.c_q, rows), "keys": (self.c_k, 2 * self.tau - rows)}
        return {
            f"kernels of {role}": self.pick(table, layer)[:, at]
            for role, (table, at) in tables.items()
            if table is not None
        }

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The fixed kernel of each head: [batch | 1, heads, query, key]."""
        if self.f is None:
            return None
        by_row = self.pick(self.f, layer)[:, :, 0]  # [heads, row]
        return by_row[:, context.clipped(self.tau)].transpose(0, 1)
