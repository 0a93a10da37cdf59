"""Wu, Peng, Chen, Fu, Chao (2021), iRPE: relative positions in pieces, here of a line.

Distances x = j - i count one by one up to alpha and then in growing steps, until gamma counts as
beta: idx(x) = x if |x| <= alpha, else
sign(x) min(beta, round(alpha + (beta - alpha) log(|x| / alpha) / log(gamma / alpha))).

contextual: on keys e_ij += q_i . r^K[idx] / sqrt(head_dim), on queries e_ij += k_j . r^Q[idx] /
sqrt(head_dim), on values o_i += sum_j p_ij r^V[idx];  bias: e_ij += b[idx], whatever the content.

The paper's other ways to number a distance (product, cross, Euclidean) are for images; on a line
they agree with this one. Its image defaults alpha, beta, gamma = 1.9, 3.8, 15.2 are for small
grids, nmt's default (8, 16, 64) for sentences. Its x is i - j, which only relabels the rows.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import query_products, row_sums
from nmt.encodings.vectors.distances import key_products


class Irpe(Encoding):
    """Learns a vector (or a number) for each of 2 beta + 1 groups of distances, from zero.

    Heads share them unless per_head, layers never do: (2 beta + 1) head_dim numbers per layer
    for each of query, key and value that is contextual, 2 beta + 1 for each that is a bias.
    """

    relative = True
    distances_only = True
    zeros = ("query_table", "key_table", "value_table")
    query_table: Tensor | None  # [layers, heads | 1, 2 beta + 1, head_dim | 1]
    key_table: Tensor | None
    value_table: Tensor | None

    def __init__(
        self,
        dims: Dims,
        query: Literal["none", "contextual", "bias"] = "none",
        key: Literal["none", "contextual", "bias"] = "contextual",
        value: Literal["none", "contextual"] = "none",
        alpha: int = 8,
        beta: int = 16,
        gamma: int = 64,
        per_head: bool = False,
    ) -> None:
        super().__init__(dims)
        self.reads_queries_or_keys = "contextual" in (key, query)
        if not 0 < alpha < beta <= gamma:
            sizes = f"alpha={alpha}, beta={beta}, gamma={gamma}"
            raise ValueError(f"{sizes}: must grow, from 1 on; only beta and gamma may be equal")
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        self.query, self.key, self.value = query, key, value
        for name, mode in (("query", query), ("key", key), ("value", value)):
            width = dims.head_dim if mode == "contextual" else 1
            shape = (dims.layers, dims.heads if per_head else 1, 2 * beta + 1, width)
            table = None if mode == "none" else nn.Parameter(torch.zeros(shape))
            self.register_parameter(f"{name}_table", table)
        if query == key == value == "none":
            raise ValueError("query=none, key=none and value=none: nothing is left to learn")
        if query == key == "bias":
            raise ValueError("query=bias and key=bias: the same term twice; set one to none")

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add the contextual terms of keys and queries to s [batch, heads, query, key]."""
        if self.key_table is not None and self.key == "contextual":
            s = s + query_products(q, self.pick(self.key_table, layer), self._index(context))
        if self.query_table is not None and self.query == "contextual":
            s = s + key_products(k, self.pick(self.query_table, layer), self._index(context))
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The numbers of the groups [batch | 1, heads | 1, query, key]."""
        table = self.key_table if self.key == "bias" else self.query_table
        if table is None or "bias" not in (self.key, self.query):
            return None
        return self.pick(table, layer)[:, :, 0][:, self._index(context)].transpose(0, 1)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add the vector of each group, weighted by the attention that the group got."""
        if self.value_table is None or p is None:
            return o
        return o + row_sums(p, self.pick(self.value_table, layer), self._index(context))

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """Vectors of the groups that the distances fall into, of each contextual table."""
        rows = piecewise(distances, self.alpha, self.beta, self.gamma) + self.beta
        tables = {
            "keys": (self.key, self.key_table),
            "queries": (self.query, self.query_table),
            "values": (self.value, self.value_table),
        }
        return {
            role: self.pick(table, layer)[:, rows]
            for role, (mode, table) in tables.items()
            if table is not None and mode == "contextual"
        }

    def _index(self, context: Context) -> Tensor:
        sizes = (self.alpha, self.beta, self.gamma)
        return context.once(("irpe", sizes), lambda: piecewise(context.delta, *sizes) + self.beta)


def piecewise(x: Tensor, alpha: int, beta: int, gamma: int) -> Tensor:
    """The group -beta..beta of each distance, whole or not."""
    far = x.abs().to(torch.float64).clamp(min=alpha)
    steps = (far / alpha).log() / math.log(gamma / alpha) * (beta - alpha)
    grown = (alpha + steps).round().clamp(max=beta) * x.sign()
    return torch.where(x.abs() <= alpha, x.round() if x.is_floating_point() else x, grown).long()
