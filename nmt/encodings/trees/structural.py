"""Zhu, Li, Zhu, Qian, Zhang, Zhou (2019), Modeling Graph Structure in Transformer for Better
AMR-to-Text Generation: the Structural Transformer.

    e_ij = q_i . (k_j + W_R r_ij) / sqrt(head_dim),   o_i = sum_j p_ij (v_j + W_F r_ij)

r_ij is made of the labels and directions of the edges on the path from word i to word j: the mean
or the sum of a vector for each, or one vector for the whole path (by feature). Here the graph is
the source's dependency tree. (The authors also try self-attention and a CNN over the path, their
code normalises r_ij in each layer, and has paths of up to 5 edges.)
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, zeroed
from nmt.encodings.positions_columns import Heads
from nmt.encodings.trees.paths import LARGEST, LabelledTree

FEATURES = 100_000  # vectors of whole paths, at most


class Structural(Encoding):
    """2 matrices per layer for all heads: 2 layers head_dim^2, and head_dim for each step or path.

    All pieces of a word have its paths. Paths longer than `longest`, those within a word, and none
    have a vector each.
    """

    relative = True
    position_type = "none"  # positions come from the tree alone

    def __init__(
        self,
        dims: Dims,
        tree: Heads = "heads",
        labels: str = "labels",
        kinds: PositiveInt = 20,
        longest: PositiveInt = 5,
        path: Literal["average", "sum", "feature"] = "average",
    ) -> None:
        labelled = LabelledTree(tree, labels, kinds, longest)
        super().__init__(dims)
        self.columns |= labelled.columns
        self.column_ranges = {labels: range(kinds)}
        labelled.check(dims.site, FEATURES if path == "feature" else LARGEST)
        self.labelled, self.path, width = labelled, path, dims.head_dim
        rows = labelled.starts[-1] + 2 if path == "feature" else 2 * kinds + 3
        self.vectors = self.table(rows, width, per_layer=False)
        self.key, self.value = self.table(width, width), self.table(width, width)

    def zero_initialise(self) -> bool:
        """Zero matrices add nothing."""
        return zeroed(self.key, self.value)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . (W_R r_ij) to s [batch, heads, query, key]."""
        q = q @ self.pick(self.key, layer)
        return s + torch.einsum("bhid,bijd->bhij", q, self._relations(context).to(q.dtype))

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add the sum of W_F r_ij, weighted by p [batch, heads, query, key]."""
        assert p is not None  # as it reads probabilities
        summed = torch.einsum("bhij,bijd->bhid", p, self._relations(context).to(p.dtype))
        return o + summed @ self.pick(self.value, layer).mT

    def _relations(self, context: Context) -> Tensor:
        """r_ij [batch, query, key, head_dim], the same in all layers."""

        def make() -> Tensor:
            vectors = self.vectors[0, 0]
            if self.path == "feature":
                return F.embedding(self.labelled.numbers(context), vectors)
            steps, lengths, index = self.labelled.paths(context)
            real = torch.arange(steps.shape[1], device=steps.device) < lengths[:, None]
            r = (F.embedding(steps, vectors) * real[..., None]).sum(1)
            return F.embedding(index, r / lengths[:, None] if self.path == "average" else r)

        return context.once(("structural", id(self)), make)
