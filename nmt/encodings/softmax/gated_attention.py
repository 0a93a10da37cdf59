"""Qiu et al. (2025), Gated Attention for Large Language Models: a gate on what attention gives.

    o_i = sigmoid(x_i W) * sum_j p_ij v_j

with x the input of the layer's attention. The gate knows no positions; it lets a head say nothing
where softmax must give its weights to some word. Their best variant: after the weighted sum,
for each component of each head (G1, elementwise, no bias). Lin et al. (2025, Forgetting Transformer
Pro) gate at the same point, and norm each head's output before: `encoding=[fox,gated_attention]
encoding.gated_attention.norm=true` (their norm has learned factors, this one has none).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding


class GatedAttention(Encoding):
    """Learns W for every layer: dim * heads * head_dim, or dim * heads with `per=head`."""

    relative = True
    position_type = "none"
    reads_probabilities = False

    def __init__(
        self, dims: Dims, per: Literal["component", "head"] = "component", norm: bool = False
    ) -> None:
        super().__init__(dims)
        self.norm = norm
        gates = dims.dim if per == "component" else dims.heads
        self.weight = nn.Parameter(torch.empty(dims.layers, gates, dims.dim))
        for one in self.weight.detach():
            nn.init.xavier_uniform_(one)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Multiply o [batch, heads, query, head_dim] with gates of x [batch, query, dim]."""
        gates = F.linear(x, self.weight[layer].to(x.dtype)).sigmoid()
        gates = gates.unflatten(-1, (self.dims.heads, -1)).transpose(1, 2)  # [.., head_dim | 1]
        if self.norm:
            o = F.rms_norm(o, o.shape[-1:])
        return o * gates.to(o.dtype)
