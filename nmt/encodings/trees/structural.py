"""Zhu, Li, Zhu, Qian, Zhang, Zhou (2019), Modeling Graph Structure in Transformer for Better
AMR-to-Text Generation: the Structural Transformer.

    e_ij = q_i . (k_j + W_R r_ij) / sqrt(head_dim),   o_i = sum_j p_ij (v_j + W_F r_ij)

r_ij consists of the labels and directions of the edges on the path from word i to word j, in the
paper's five ways: the mean or the sum of a vector h_m for each step, one vector for the whole path
(feature), or, in each layer, a convolution as long as the longest path, r = relu(b + sum_m W_m h_m)
(cnn), or attention among the steps, whose results e_m are weighed by softmax_m(w . tanh(W_1 e_m))
(attention; one head, and w of 128 numbers as in the authors' code). The last two were their best.

Here the graph is the source's dependency tree. Other than here, the code that they published
normalises r_ij in each layer, has paths of up to 4 edges for cnn and attention, and 8 heads of
attention, whose results go through the convolution.
"""

from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, softmax
from nmt.encodings.positions_columns import Heads
from nmt.encodings.trees.paths import LARGEST, LabelledTree, with_vectors

FEATURES = 100_000  # vectors of whole paths, at most
POOLING = 128  # width of the map that weighs steps


class Structural(Encoding):
    """2 matrices per layer for all heads: 2 layers head_dim^2, and head_dim for each step or path.

    A layer of cnn has longest head_dim^2 + head_dim parameters more, one of attention
    3 head_dim^2 + 128 (head_dim + 1).

    All pieces of a word have its paths. Paths longer than `longest`, those within a word, and none
    have a vector each.
    """

    sites = ("encoder",)  # columns are parallel to the source
    relative = True
    position_type = "none"  # positions come from the tree alone
    zeros = ("key", "value")

    def __init__(
        self,
        dims: Dims,
        tree: Heads = "heads",
        labels: str = "labels",
        kinds: PositiveInt = 20,
        longest: PositiveInt = 5,
        path: Literal["average", "sum", "feature", "cnn", "attention"] = "average",
    ) -> None:
        labelled = LabelledTree(tree, labels, kinds, longest)
        super().__init__(dims)
        self.columns |= labelled.columns
        self.column_ranges = {labels: range(kinds)}
        labelled.check(FEATURES if path == "feature" else LARGEST)
        self.labelled, self.path, width = labelled, path, dims.head_dim
        rows = labelled.starts[-1] + 2 if path == "feature" else 2 * kinds + 3
        self.vectors = self.make_table(rows, width, per_layer=False)
        self.key, self.value = self.make_table(width, width), self.make_table(width, width)
        if path == "cnn":
            self.kernel = self.make_table(longest * width, width)
            self.kernel_bias = nn.Parameter(torch.zeros(dims.layers, width))
        elif path == "attention":
            self.among_steps = self.make_table(width, 3 * width)  # queries, keys and values
            self.weigh_in = self.make_table(width, POOLING)
            self.weigh_out = self.make_table(POOLING, 1)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add q_i . (W_R r_ij) to s [batch, heads, query, key]."""
        q = q @ self.pick(self.key, layer)
        rows, index = self._relations(layer, context)
        return s + with_vectors(partial(torch.einsum, "bhid,bijd->bhij"), q, rows, index)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Add the sum of W_F r_ij, weighted by p [batch, heads, query, key]."""
        assert p is not None  # as it reads probabilities
        rows, index = self._relations(layer, context)
        summed = with_vectors(partial(torch.einsum, "bhij,bijd->bhid"), p, rows, index)
        return o + summed @ self.pick(self.value, layer).mT

    def _relations(self, layer: int, context: Context) -> tuple[Tensor, Tensor]:
        """r of each path [path, head_dim], and the number of each pair's [batch, query, key]."""
        vectors = self.vectors[0, 0]
        if self.path == "feature":
            numbers = context.once(("paths", id(self)), lambda: self.labelled.numbers(context))
            return vectors, numbers
        paths = context.once(("paths", id(self)), lambda: self.labelled.paths(context))
        steps, lengths, index = paths

        def make() -> Tensor:
            real = torch.arange(steps.shape[1], device=steps.device) < lengths[:, None]
            return self._read(F.embedding(steps, vectors) * real[..., None], real, layer)

        number = layer if self.path in ("cnn", "attention") else 0
        return context.once(("structural", id(self), number), make), index

    def _read(self, h: Tensor, real: Tensor, layer: int) -> Tensor:
        """A vector for each path [path, head_dim], of its steps h [path, longest, head_dim].

        `real` [path, longest]: h is 0 beyond the end of a path.
        """
        if self.path == "cnn":
            return (h.flatten(1) @ self.kernel[layer, 0] + self.kernel_bias[layer]).relu()
        if self.path == "attention":
            q, k, v = (h @ self.among_steps[layer, 0]).chunk(3, -1)
            e = softmax(q @ k.mT * h.shape[-1] ** -0.5, real[:, None]) @ v
            weights = (e @ self.weigh_in[layer, 0]).tanh() @ self.weigh_out[layer, 0]
            return (softmax(weights.mT, real[:, None]) @ e).squeeze(1)
        return h.sum(1) / real.sum(1, keepdim=True) if self.path == "average" else h.sum(1)
