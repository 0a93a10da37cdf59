"""Beltagy, Peters, Cohan (2020), Longformer: sliding windows.

    e_ij = q_i . k_j / sqrt(head_dim) + m_ij,   m_ij = 0 if |j - i| <= size, else -infinity

A token sees the keys within a window around it; what lies farther away reaches it through the
layers between. A decoder's window has its past side only. The paper's windows are written as w
tokens, w / 2 on either side: size = w / 2. Its dilated windows, and its tokens that see all
tokens, are not here. All keys are computed and most are hidden, so it saves no time.
"""

import torch
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.alibi import HIDDEN


class SlidingWindow(Encoding):
    """Hides keys that are farther away than `size`; learns nothing.

    A token is within its own window, so no query has all its keys hidden.
    """

    sites = ("encoder", "decoder")  # a window lies around a token of the same text
    relative = True
    distances_only = True

    def __init__(self, dims: Dims, size: PositiveInt = 4) -> None:
        super().__init__(dims)
        self.size = size

    def bias(self, layer: int, context: Context) -> Tensor:
        """0 or, where hidden, very low: [batch | 1, 1, query, key], the same in every layer."""

        def make() -> Tensor:
            far = context.delta.abs()[:, None] > self.size
            return torch.zeros(far.shape, device=far.device).masked_fill(far, HIDDEN)

        return context.once(("sliding_window", self.size), make)
