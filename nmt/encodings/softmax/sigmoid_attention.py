"""Ramapuram et al. (2025), Theory, Analysis, and Best Practices for Sigmoid Self-Attention.

    p_ij = sigmoid(e_ij - log n)

Each key is weighed on its own, so weights need not add up to 1; with -log n as the bias they do
about so at the start, when scores are small. In the authors' code (apple/ml-sigmoid-attention) the
bias is one constant of a model, whose texts have one length n. Sentences have many, so here n is
the number of keys that the query may see (our choice), without those that another entry's bias
hides, unless `keys` names one number for all.
"""

import math

from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.alibi import HIDDEN


class SigmoidAttention(Encoding):
    """Sigmoid instead of softmax; reads no positions, and learns nothing."""

    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, keys: NonNegativeInt = 0) -> None:
        super().__init__(dims)
        self.keys = keys

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """The weight of each key by itself: [batch, heads, query, key]."""
        hidden = e < HIDDEN / 2
        if context.allowed is not None:
            hidden = hidden | ~context.allowed
        n = (~hidden).sum(-1, keepdim=True).clamp(min=1)  # [batch, heads, query, 1]
        log_n = math.log(self.keys) if self.keys else n.to(e.dtype).log()
        return (e - log_n).sigmoid().masked_fill(hidden, 0)
