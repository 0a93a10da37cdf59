"""Wu, Wu, Huang (2021), DA-Transformer: distance-aware attention.

e_ij = relu(q_i . k_j) R_h(|i - j|) / sqrt(head_dim),  R_h(x) = (1 + exp v) / (1 + exp(v - w x)),
v and w learned for every head. R(0) = 1; with w > 0 it grows to 1 + exp v, so the head prefers
what is far; with w < 0 it falls to 0, so the head sees only what is near.

Left and right look the same, so an encoder with nothing else cannot tell a sentence from its
reverse. Initial values (v, w standard normal) are reconstructed, the paper's own text was not at
hand: a head starts as local or global at random.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding


class DaTransformer(Encoding):
    """Multiplies the positive scores with a learned sigmoid of the distance.

    Two numbers for every head of every layer.
    """

    relative = True
    distances_only = True
    reads_queries_or_keys = False

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.v = self.make_table(1, 1, per_head=True)  # [layers, heads, 1, 1]
        self.w = self.make_table(1, 1, per_head=True)
        with torch.no_grad():
            self.v.normal_()
            self.w.normal_()

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Replace s [batch, heads, query, key] by relu(s) R(|distance|)."""
        v, w = self.pick(self.v, layer), self.pick(self.w, layer)  # [heads, 1, 1]
        return s.relu() * rescale(context.delta[:, None].abs().to(v.dtype), v, w).to(s.dtype)


def rescale(distance: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """R of distances >= 0, as a sigmoid: exp(v - w distance) alone would overflow for w < 0."""
    return (1 + v.exp()) * torch.sigmoid(w * distance - v)
