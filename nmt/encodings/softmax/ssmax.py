"""Nakanishi (2025), Scalable-Softmax Is Superior for Attention (SSMax).

    p_ij = exp(s_h log(n_i) e_ij) / sum_k exp(s_h log(n_i) e_ik)

with n_i the number of keys that query i may see: in a longer text softmax needs greater differences
to stay as sharp. s is one number per head and layer, learned. It starts at 0.43, the s of the
paper's first figure, with which ten keys get the weights of softmax; the paper does not say what
its models start at. The paper has decoders alone; in an encoder and across, n is the length of the
source (our extension).

s log n multiplies the query, so that the fused kernel computes the rest, and other entries may
change scores or replace softmax. What they add to products of the query is scaled with it, a bias
is not, and keys that a bias hides, as those outside of a window, count (our choice: the paper
has no biases).
"""

import torch
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, Projection


class Ssmax(Encoding):
    """Learns a factor for every head and layer: heads per layer. Reads no positions."""

    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, start: float = 0.43) -> None:
        super().__init__(dims)
        self.factor = nn.Parameter(torch.full((dims.layers, dims.heads), start))

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Multiply queries [batch, heads, query, head_dim] by s log n."""
        q, k, v = project(xq, xk, xv)
        log_n = context.once("ssmax", lambda: self._log_counts(context))
        return q * (self.factor[layer][:, None, None] * log_n).to(q.dtype), k, v

    def _log_counts(self, context: Context) -> Tensor:
        """log n of each query: [batch | 1, 1, query | 1, 1]."""
        if context.allowed is None:
            return self.factor.new_full((1, 1, 1, 1), context.key_positions.shape[1]).log()
        n = context.allowed.sum(-1, keepdim=True).clamp(min=1)
        return n.to(self.factor.dtype).log()
