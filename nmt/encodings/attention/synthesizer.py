"""Tay, Bahri, Metzler, Juan, Zhao, Zheng (2021), Synthesizer: scores without products of words.

    dense:       e_ij = (W relu(q_i) + b)_j       a query guesses where to look
    random:      e_ij = R_ij                      a table, the same for all sentences
    factorised:  e_ij = (A B^T)_ij                the same of two narrow tables

i and j are positions, so tables have a longest text. Each head of a layer has its own, and dense's
inner map from the input to q is the projection of queries, biases included: together the two have
dim^2 + longest dim parameters per layer, as in the paper. Keys are not read, nor queries but by
dense, so these projections are left out, unless the entry serves some layers only, or another
entry reads them. The paper's tables that stay as they were drawn, its factorised dense form and its
mixtures are not here; how tables start is our choice (Glorot's).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class Synthesizer(Encoding):
    """Learns scores by position, instead of products of queries and keys.

    Per layer and head longest (head_dim + 1), longest^2, or 2 longest rank numbers.
    """

    position_type = "integer"
    may_lack_gradients = True

    def __init__(
        self,
        dims: Dims,
        form: Literal["dense", "random", "factorised"] = "dense",
        longest: PositiveInt = 256,
        rank: PositiveInt = 8,
    ) -> None:
        super().__init__(dims)
        self.num_positions = longest
        self.score_scale = dims.head_dim**-0.5
        self.reads_queries_or_keys = form == "dense"
        self.form = form
        width = {"dense": dims.head_dim, "random": longest, "factorised": rank}[form]
        self.weight = self.make_table(longest, width, per_head=True)  # W, R or A
        if form == "dense":
            self.bias_of_key = nn.Parameter(torch.zeros(dims.layers, dims.heads, 1, longest))
        if form == "factorised":
            self.key_table = self.make_table(longest, width, per_head=True)  # B

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """sqrt(head_dim) e instead of q k^T, so that the scaling makes it e."""
        weight = self.weight[layer].to(s.dtype)  # [heads, longest, width]
        if self.form == "dense":
            e = q.relu() @ weight.mT + self.bias_of_key[layer].to(s.dtype)  # of all positions
        else:
            e = weight[:, context.query_positions].transpose(0, 1)  # [.., heads, query, width]
        if self.form == "factorised":
            e = e @ self.key_table[layer].to(s.dtype)[:, context.key_positions].transpose(0, 1).mT
        else:
            rows = max(len(e), len(context.key_positions))
            keys = context.key_positions[:, None, None, :].expand(rows, *e.shape[1:3], -1)
            e = e.expand(rows, -1, -1, -1).gather(-1, keys)
        return e.expand_as(s) * self.dims.head_dim**0.5  # in this order, of memory of its own
