"""Yang et al. (2025), PaTH Attention: positions by accumulated Householder transformations.

    e_ij = q_i . H_i H_(i-1) .. H_(j+1) k_j / sqrt(head_dim),   H_t = I - beta_t w_t w_t^T
    beta_t = 2 sigmoid(u . x_t + b),   w_t = silu(c * (V U x)_t) / norm

Each word between key and query takes a part of the key away, or reflects it, in a direction of its
own; so distance is what the words make of it. c * is a causal convolution of each component over
three words, V U a product of low rank. With beta = 0 this is attention without positions. Follows
the authors' code (fla-org/flash-linear-attention) without its optional forget gate. That is not
[path_attention,fox], which adds sums of log gates to scaled scores; with the forget gate
these sums are divided by sqrt(head_dim) as well.

Defined for a decoder. In the encoder (our extension) keys ahead have the mirror image in between,
H_i H_(i+1) .. H_(j-1). Products of H are never formed: with A_ts = beta_t w_t . w_s below the
diagonal, and B_tj = beta_t w_t . k_j where t > j, past scores are Q K^T - tril(Q W^T) (I + A)^-1 B.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, Projection, at_least_float32
from nmt.encodings.recurrence.convolution import causal_convolution

TAPS = 3  # words of the convolution


class PathAttention(Encoding):
    """Learns U, V, u and b for each layer: rank (dim + heads head_dim) + heads (dim + 1), and c."""

    sites = ("encoder", "decoder")  # a path leads through the words of one text
    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, rank: PositiveInt = 32) -> None:
        super().__init__(dims)
        self.down = self.make_table(dims.dim, rank)
        self.up = self.make_table(rank, dims.heads * dims.head_dim)
        self.taps = self.make_table(TAPS, dims.head_dim, per_head=True)
        self.beta = self.make_table(dims.dim, dims.heads)
        self.beta_bias = nn.Parameter(torch.zeros(dims.layers, dims.heads))

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Remember V U x and beta of each key, side by side; queries, keys and values stay."""
        down, up, beta = (p[layer, 0].to(xk.dtype) for p in (self.down, self.up, self.beta))
        directions = (xk @ down @ up).unflatten(-1, (self.dims.heads, -1))
        strengths = 2 * (xk @ beta + self.beta_bias[layer].to(xk.dtype)).sigmoid()
        both = torch.cat([directions, strengths[..., None]], -1).transpose(1, 2)
        context.remember(self.name, layer, both)  # [batch, heads, new, head_dim + 1]
        return project(xq, xk, xv)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Subtract from q k^T what the words in between take away."""
        with torch.autocast(s.device.type, enabled=False):
            both = context.recall(self.name, layer)
            q, k, both = map(at_least_float32, (q, k, both))
            directions = causal_convolution(both[..., :-1], self.taps[layer].to(both.dtype))
            w, beta = F.normalize(F.silu(directions), dim=-1), both[..., -1:]
            taken = _taken(q, k, w, beta)
            if context.site == "encoder":
                taken = taken + _taken(*(t.flip(2) for t in (q, k, w, beta))).flip(2, 3)
            return s - taken.to(s.dtype)


def _taken(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """q_i . (k_j - H_i .. H_(j+1) k_j) [batch, heads, query, key], 0 for keys that are not past.

    Queries are the last tokens; k and w [.., key, head_dim], beta [.., key, 1] of all.
    """
    between = (beta * (w @ w.mT)).tril(-1)  # A; its diagonal of ones is implied
    taken = (beta * (w @ k.mT)).tril(-1)  # B
    seen = (q @ w.mT).tril(k.shape[2] - q.shape[2])
    solved = torch.linalg.solve_triangular(
        between, seen, upper=False, left=False, unitriangular=True
    )
    return solved @ taken
