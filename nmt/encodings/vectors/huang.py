"""Huang, Liang, Xu, Xiang (2020), Better Relative Position Embeddings: four ways to use them.

With a vector or number a_x learned for each distance x = clip(j - i), |x| <= tau:

method 1: e_ij = (q_i . k_j) a_|x| / sqrt(head_dim)                   a number, left = right
method 2: e_ij = (q_i . k_j) a_x / sqrt(head_dim)                     a number
method 3: e_ij = sum_d q_id k_jd a_xd / sqrt(head_dim)                a vector between q and k
method 4: e_ij = (q_i . k_j + q_i . a_x + k_j . a_x) / sqrt(head_dim) a vector, one for both

With other entries: methods 1 and 2 multiply the whole score of earlier entries, method 3
replaces q_i . k_j in it and leaves what they added.

Initial values are reconstructed; the paper's own text was not at hand: ones where a multiplies, so
that training starts from attention without positions, normal with deviation 0.02 in method 4.
"""

from typing import Literal

import torch
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import by_queries, query_products
from nmt.encodings.vectors.distances import key_products


class Huang(Encoding):
    """Multiplies scores by numbers or vectors of the distance (1-3), or adds products (4).

    A table for every layer, and for every head if per_head: tau + 1 numbers in method 1, 2 tau + 1
    in method 2, (2 tau + 1) head_dim in methods 3 and 4.
    """

    relative = True
    position_type = "integer"
    distances_only = True

    def __init__(
        self,
        dims: Dims,
        method: Literal[1, 2, 3, 4] = 4,
        tau: NonNegativeInt = 128,
        per_head: bool = True,
    ) -> None:
        super().__init__(dims)
        self.reads_queries_or_keys = method > 2
        self.method, self.tau = method, tau
        rows = tau + 1 if method == 1 else 2 * tau + 1
        width = 1 if method < 3 else dims.head_dim
        self.a = self.make_table(rows, width, per_head=per_head)  # [layers, heads | 1, rows, width]
        with torch.no_grad():
            self.a.normal_(0, 0.02) if method == 4 else self.a.fill_(1)

    def zero_initialise(self) -> bool:
        """Ones where a multiplies, zeros where it is added."""
        with torch.no_grad():
            self.a.fill_(0 if self.method == 4 else 1)
        return True

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Change s [batch, heads, query, key] by the method's formula."""
        a = self.pick(self.a, layer).to(q.dtype)  # [heads | 1, row, width]
        index = context.clipped(self.tau)  # [batch | 1, query, key]
        if self.method == 4:
            return s + query_products(q, a, index) + key_products(k, a, index)
        if self.method == 3:
            more = (self.pick(self.a, layer) - 1).to(q.dtype)  # s holds the product without a
            return s + _triple(q, k, more, index)
        if self.method == 1:
            index = (index - self.tau).abs()
        return s * a[:, :, 0][:, index].transpose(0, 1)

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor] | None:
        """Rows of the table, where they are vectors (methods 3 and 4)."""
        rows = distances.clamp(-self.tau, self.tau) + self.tau
        return {"queries and keys": self.pick(self.a, layer)[:, rows]} if self.method > 2 else None


def _triple(q: Tensor, k: Tensor, a: Tensor, index: Tensor) -> Tensor:
    """sum_d q_id k_jd a[index_ij]_d: [batch, heads, query, key]."""

    def products(q: Tensor, index: Tensor) -> Tensor:
        between = a[:, index.mT].transpose(0, 1)  # [batch | 1, heads | 1, key, query, head_dim]
        return ((q[:, :, None] * between) @ k[..., None])[..., 0].mT

    batch, heads, _, width = q.shape
    return by_queries(products, q, index, per_query=batch * heads * k.shape[2] * width)
