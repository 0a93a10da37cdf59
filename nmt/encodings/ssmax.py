"""Nakanishi (2025), Scalable-Softmax Is Superior for Attention (SSMax).

    p_ij = exp(s_h log(n_i) e_ij) / sum_k exp(s_h log(n_i) e_ik)

with n_i the number of keys that query i may see: in a longer text softmax needs greater
differences to stay as sharp. s is one number per head and layer, learned. It starts at 0.43, the s
of the paper's first figure, with which ten keys get the weights of softmax; what s its models start
at is not known here. The paper has decoders alone; in an encoder and across, n is the length of the
source (ours).
"""

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, Facts
from nmt.encodings.weights import softmax


class Ssmax(Encoding):
    """Learns a factor for every head and layer: heads per layer. It knows no positions."""

    facts = Facts(relative=True, takes="nothing")

    def __init__(self, dims: Dims, start: float = 0.43) -> None:
        super().__init__(dims)
        self.factor = nn.Parameter(torch.full((dims.layers, dims.heads), start))

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """Multiply scores e [batch, heads, query, key] by s log n before softmax."""
        n = e.new_full((1, 1, 1, 1), e.shape[-1])
        if context.allowed is not None:
            n = context.allowed.sum(-1, keepdim=True).clamp(min=1)  # [batch | 1, 1, query | 1, 1]
        factor = self.factor[layer][:, None, None]
        return softmax(e * (factor * n.to(e.dtype).log()), context.allowed)
