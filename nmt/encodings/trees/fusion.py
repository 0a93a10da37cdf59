"""Two positions of one token, fused by a learned layer: what SPR and cross-lingual positions share.

x_t + tanh(U PE(p_t) + V PE(r_t)), where p is the place in the sentence and r the other position.
U and V are dim x dim without bias, so the order of sines and cosines in PE makes no difference.
Both papers are known here from surveys and summaries; the formula is reconstructed, the papers'
own text was not at hand.
"""

import torch
from torch import Tensor, nn

from nmt.encodings.sinusoids import frequencies, sinusoids


class Fusion(nn.Module):
    """The learned layer: two matrices, 2 dim^2 parameters."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.first = nn.Linear(dim, dim, bias=False)
        self.second = nn.Linear(dim, dim, bias=False)
        frequencies(dim)  # refuses an odd width at once
        for linear in (self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Fuse positions [batch | 1, length] of two kinds into x [batch, length, dim]."""
        dtype = self.first.weight.dtype
        a, b = (sinusoids(p, self.dim).to(dtype) for p in (first, second))
        return x + torch.tanh(self.first(a) + self.second(b)).to(x.dtype)
