"""Tu et al. (2016), Modeling Coverage for Neural Machine Translation, as a term of the scores.

    C_ij = sum_{i' < i} a_i'j / Phi_j;    e_ij = q_i . k_j / sqrt(head_dim) + w_h C_ij

with a the weights by the scores before the term: what the head has attended to in the words before,
so that it may turn to what was not translated yet. Phi_j = 2 sigmoid(u_h . k_j) is the fertility
of a source word, how much attention it takes (their eq. 11, N = 2), and 1 without `fertility`.

Their model sums weights after the term, through a layer with tanh, word after word; with weights
before the term all target words are computed in one pass, and decoding step by step is the same.
"""

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, at_least_float32, softmax


class Coverage(Encoding):
    """Learns a number per head and layer, and with `fertility` a vector of head_dim."""

    sites = ("cross",)  # only of a source can all be covered
    relative = True
    position_type = "none"
    zeros = ("weight",)

    def __init__(self, dims: Dims, fertility: bool = True) -> None:
        super().__init__(dims)
        self.score_scale = dims.head_dim**-0.5  # which its weights rely on
        shape = (dims.layers, dims.heads, 1, 1)
        self.weight = nn.Parameter(torch.zeros(shape))
        vectors = torch.zeros(*shape[:2], dims.head_dim, 1)
        self.fertility = nn.Parameter(vectors) if fertility else None

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Add sqrt(head_dim) w C, which becomes w C by the scaling."""
        scale = self.dims.head_dim**-0.5
        weights = softmax(at_least_float32(s) * scale, context.allowed)
        covered = context.attended_before(self.name, layer, weights)
        if self.fertility is not None:
            phi = 2 * (k.to(covered.dtype) @ self.fertility[layer].to(covered.dtype)).sigmoid()
            covered = covered / phi.mT
        return s + self.weight[layer] * covered / scale
