"""He, Liu, Gao, Chen (2021), DeBERTa: attention that keeps content and position apart.

e_ij = [q_i . k_j + q_i . (W_Kr P[d(i, j)]) + k_j . (W_Qr P[d'])] / sqrt(3 head_dim),
d(i, j) = clamp(i - j + k, 0, 2k - 1); P holds one vector of the model's width per distance.

The paper's d' is d(j, i), the distance seen from the key. Every implementation that we read
(microsoft/DeBERTa and both in transformers) has d(i, j) there, so that is the default.

The paper's enhanced mask decoder, absolute positions just before the prediction of masked words,
is not part of this; `encoding=[learned,deberta]` tells the model absolute positions at the input.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.vectors.by_row import query_products
from nmt.encodings.vectors.distances import distinct, key_products


class Deberta(Encoding):
    """Adds content-to-position and position-to-content terms to the scores.

    P is shared by the layers, the projections W_Kr and W_Qr belong to a layer and have no
    biases: 2k dim + 2 layers dim^2 parameters per stack.
    """

    relative = True
    position_type = "integer"
    distances_only = True

    def __init__(
        self, dims: Dims, k: PositiveInt = 128, p2c: Literal["code", "paper"] = "code"
    ) -> None:
        super().__init__(dims)
        self.score_scale = (3 * dims.head_dim) ** -0.5
        self.k, self.p2c = k, p2c
        self.p = nn.Parameter(torch.randn(2 * k, dims.dim) * 0.02)  # [2k, dim], as in their code
        self.w_kr = self.make_table(dims.dim, dims.dim)  # [layers, 1, width, dim]
        self.w_qr = self.make_table(dims.dim, dims.dim)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add both terms to s [batch, heads, query, key]; `score_scale` is of all three."""
        distances, index = distinct(context, self.k)
        seen = self._rows(-distances)  # from the query: d(i, j)
        c2p = query_products(q, self._heads(seen, self.w_kr, layer), index)
        if self.p2c == "paper":
            seen = self._rows(distances)  # from the key: d(j, i)
        return s + c2p + key_products(k, self._heads(seen, self.w_qr, layer), index)

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """P of the distances, as the layer projects it for the two terms."""
        as_key = self._heads(self._rows(-distances), self.w_kr, layer)
        seen = self._rows(distances if self.p2c == "paper" else -distances)
        return {"keys": as_key, "queries": self._heads(seen, self.w_qr, layer)}

    def _rows(self, distances: Tensor) -> Tensor:
        """P[d] of the distances that occur: [distance, dim]."""
        return self.p[(distances + self.k).clamp(0, 2 * self.k - 1)]

    def _heads(self, rows: Tensor, weights: Tensor, layer: int) -> Tensor:
        """Project and split: [heads, distance, head_dim]."""
        projected = rows @ self.pick(weights, layer)[0].mT
        return projected.unflatten(-1, (self.dims.heads, -1)).transpose(0, 1)
