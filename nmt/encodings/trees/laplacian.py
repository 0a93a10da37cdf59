"""Dwivedi, Bresson (2020), A Generalization of Transformer Networks to Graphs: eigenvectors.

With A the edges of a tree, each between a word and its head, and D the number of edges of a word,

    L = I - D^-1/2 A D^-1/2 = U diag(lambda) U^T,   0 = lambda_0 < lambda_1 <= lambda_2 ...,

and word t adds C u_t + c, where u_t are its components in the eigenvectors of lambda_1 .. lambda_k.
A vector has no sign of its own, so training draws one for each sentence and vector. (The paper's
attention to neighbours alone is no part of this; a sentence's roots hang on one more node here.)
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.positions_columns import Heads, tree_columns
from nmt.encodings.trees.trees import depths, first_pieces

EQUAL = 1e-9  # difference of two eigenvalues that are one: far more than float64 loses


class Laplacian(Encoding):
    """Adds a projection of `vectors` eigenvectors to the embeddings: (vectors + 1) dim parameters.

    All pieces of a word have its components. Sentences of fewer words have zeros for the rest.
    """

    sites = ("encoder",)  # columns are parallel to the source
    relative = True
    position_type = "none"  # positions come from the tree alone
    zeros = ("out",)

    def __init__(self, dims: Dims, tree: Heads = "heads", vectors: PositiveInt = 8) -> None:
        super().__init__(dims)
        self.columns |= {tree, "words"}
        self.tree, self.vectors = tree, vectors
        self.out = nn.Linear(vectors, dims.dim)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the projection to x [batch, query, dim]."""
        heads, words = tree_columns(self.tree, context)
        u = eigenvectors(heads, words, context.lengths, self.vectors)
        if context.training:
            u = u * (2 * torch.randint(2, (len(u), 1, self.vectors), device=u.device) - 1)
        return x + self.out(u.to(self.out.weight.dtype)).to(x.dtype)


def eigenvectors(heads: Tensor, words: Tensor, lengths: Tensor | None, count: int) -> Tensor:
    """Components [batch, n, count] of each piece's word, in float64, of the least eigenvalue first.

    `heads` and `words` as in `trees`; `lengths` [batch] without padding. Sister words with nothing
    below make one eigenvalue several times, and any basis of its vectors would do. To get the same
    one in every batch, word k weighs sin k^2 (no two sums of such numbers are equal): vectors of
    one eigenvalue do not correlate under these weights, and their components so weighted have a
    positive sum.
    """
    depths(heads)  # raises ValueError for what is no tree
    n, first = heads.shape[1], first_pieces(words)
    at = torch.arange(n, device=heads.device)
    nodes = (first == at) & (at < (n if lengths is None else lengths[:, None]))
    number = nodes.cumsum(1)
    weight = F.pad(number.double().square().sin() * nodes, (0, 1))[..., None]
    above = torch.where(heads > 0, heads - 1, n)  # node n is above all roots
    edges = F.pad(F.one_hot(above, n + 1) * nodes[..., None], (0, 0, 0, 1))
    edges = edges + edges.mT
    scale = edges.sum(1).clamp(min=1).double() ** -0.5
    # what is no node comes last, with an eigenvalue of 3; those of nodes are 0 to 2
    diagonal = torch.where(F.pad(nodes, (0, 1), value=True), 1.0, 3.0).double()
    laplacian = torch.diag_embed(diagonal) - edges * scale[:, :, None] * scale[:, None, :]
    values, u = torch.linalg.eigh(laplacian)
    group = F.pad((values.diff() > EQUAL).cumsum(1), (1, 0))
    within = (u.mT @ (weight * u)) * (group[:, :, None] == group[:, None, :])
    u = u @ torch.linalg.eigh(within + torch.diag_embed(3.0 * group)).eigenvectors
    u = F.pad(u[..., 1 : count + 1], (0, max(0, count - n)))
    sign = torch.where((u * weight).sum(1) < 0, -1, 1)
    exists = torch.arange(count, device=u.device) < number[:, -1:]  # with the node above: one more
    return (u * (sign * exists)[:, None]).gather(1, first[..., None].expand(-1, -1, count))
