"""Lin, Nikishin, He, Courville (2025), Forgetting Transformer (FoX): a forget gate in attention.

    f_t = sigmoid(w_h . x_t + b_h);   e_ij = q_i . k_j / sqrt(head_dim) + sum_{l = j+1..i} log f_l

with x the input of the layer's attention, and one gate for each head: what lies further back is
forgotten, and how fast depends on the words between. Gates start with b = 0 as in the authors' code
(zhixuan-lin/forgetting-transformer), and w as all projections here (the authors: N(0, 0.02^2)).
CABLE (Veisi, Amirzadeh, Mansourian 2025) adds the same: its -softplus(z), as in the code of its
authors (axiomlab/Cable), is log sigmoid(-z). Only its products q . k are not divided by
sqrt(head_dim), which scaled=false does.

Defined for a decoder. In the cross-attention (our extension) a key has faded by the words from it
to the source's end, as if the target followed the source: the gates of the target would add the
same to all keys of a query, which softmax does not see. In the encoder (our extension) the words
between query and key count, in both directions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding, Projection, at_least_float32


class Fox(Encoding):
    """Learns a vector w and a number b for every head and layer: heads (dim + 1) per layer."""

    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, bias: float = 0.0, scaled: bool = True) -> None:
        super().__init__(dims)
        self.score_scale = None if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(dims.layers, dims.heads, dims.dim))
        self.gate_bias = nn.Parameter(torch.full((dims.layers, dims.heads), bias))
        for one in self.weight.detach():
            nn.init.xavier_uniform_(one)

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Remember log f of each key; queries, keys and values stay."""
        gates = F.linear(xk, self.weight[layer].to(xk.dtype), self.gate_bias[layer].to(xk.dtype))
        log_f = F.logsigmoid(at_least_float32(gates))
        context.remember(self.name, layer, log_f.transpose(1, 2)[..., None])
        return project(xq, xk, xv)

    def bias(self, layer: int, context: Context) -> Tensor:
        """The logarithm of all gates between query and key: [batch, heads, query, key]."""
        log_f = context.recall(self.name, layer)[..., 0]  # [batch, heads, key]
        across = context.site == "cross"
        if across and context.allowed is not None:  # of padding, which not only softmax may read
            log_f = log_f.masked_fill(~context.allowed.any(2), 0)
        sums = log_f.cumsum(-1)
        if across:
            return (sums[..., -1:] - sums)[..., None, :]
        queries = sums[..., -context.query_positions.shape[1] :, None]
        return -(queries - sums[..., None, :]).abs()
