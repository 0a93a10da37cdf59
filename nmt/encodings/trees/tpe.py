"""Shiv and Quirk (2019), Novel Positional Encodings to Enable Tree-Based Transformers.

The path from the root to a node is a code: one one-hot vector of k components for each step down,
which says the branch that was taken; the last step first, zeros beyond the root. Each of c copies
weighs the step m of the code (m = 0: the last one) with

    p_c^m sqrt((1 - p_c^2) dim / 2),   p_c = tanh(a_c) learned,

so a copy sees as much of the path as its p lets it. All copies together are added to the
embeddings, through a linear layer where their width is not the model's.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.positions_columns import Heads, tree_columns
from nmt.encodings.trees.trees import binarise, birth_order, path_codes


class Tpe(Encoding):
    """Adds a code of the path from the root: dim // (branches depth) parameters, one per copy.

    At least one copy; where the copies' width is not dim, a layer of (width + 1) dim is added.
    Like the authors' code, which starts a_c uniformly in +-sqrt(3 / copies). Trees of words come
    in any shape: `binary` turns them into left child and right sister, as the authors do; else the
    children of a word are its branches, and those beyond the last branch share it.
    """

    sites = ("encoder",)  # columns are parallel to the source
    relative = True
    position_type = "none"  # positions come from the tree alone
    zeros = ("out",)  # without this layer the codes cannot be silenced

    def __init__(
        self,
        dims: Dims,
        tree: Heads = "heads",
        branches: PositiveInt = 2,
        depth: PositiveInt = 32,
        binary: bool = True,
    ) -> None:
        super().__init__(dims)
        self.columns |= {tree, "words"}
        if binary and branches != 2:
            raise ValueError(f"branches={branches}: a binary tree has 2; set binary=false")
        self.tree, self.branches, self.depth, self.binary = tree, branches, depth, binary
        copies = max(1, dims.dim // (branches * depth))
        self.decay = nn.Parameter(torch.empty(copies).uniform_(-1, 1) * (3 / copies) ** 0.5)
        width = branches * depth * copies
        self.out = nn.Linear(width, dims.dim) if width != dims.dim else nn.Identity()

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the weighted codes to x [batch, query, dim]."""
        code = self._code(context)[..., None] * self._weights()[:, None, :]
        return x + self.out(code.flatten(2)).to(x.dtype)  # [.., depth x branch x copy]

    def _code(self, context: Context) -> Tensor:
        """Zeros and ones [batch, query, depth, branch]."""
        heads, words = tree_columns(self.tree, context)
        if self.binary:
            heads, branch = binarise(heads, words)
        else:
            branch = birth_order(heads, words).clamp(max=self.branches - 1)
        path = path_codes(heads, branch, self.depth)
        return F.one_hot(path + 1, self.branches + 1)[..., 1:].to(self.decay.dtype)

    def _weights(self) -> Tensor:
        """[depth, copy]; 1 - tanh^2 = 1 / cosh^2 has a slope also where p is almost 1."""
        m = torch.arange(self.depth, device=self.decay.device)[:, None]
        return self.decay.tanh() ** m * (self.dims.dim / 2) ** 0.5 / self.decay.cosh()
