"""Barbero, Vitvitskyi, Perivolaropoulos, Pascanu, Velickovic (2025), Round and Round We Go: p-RoPE.

Rotary where the share p of the pairs with the highest frequencies rotates, and the slowest pairs do
not: trained models use these for what words mean, and beyond the texts of training they reach
angles never seen. p = 1 is RoPE, p = 0 no positions. The frequencies that stay are those of RoPE,
base^(-2b / head_dim); `rotary partial=` spreads all frequencies over fewer pairs instead.
"""

import torch
from torch import Tensor

from nmt.config.check import PositiveFloat
from nmt.encodings.base import Dims
from nmt.encodings.rotary.rotary import Base, Rotary
from nmt.encodings.sinusoids import Layout


class PRope(Rotary):
    """Rotates the fast pairs of queries and keys by their position; learns nothing."""

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        p: PositiveFloat = 0.75,
    ) -> None:
        super().__init__(dims, base, layout)
        pairs = dims.head_dim // 2
        self.rotating = int(p * dims.head_dim // 2)  # rounded down, as the paper's code has it
        if p > 1 or self.rotating == 0:
            raise ValueError(f"p={p}: must let 1 to {pairs} pairs rotate, not {p * pairs:g}")

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Angles by which neighbours differ, 0 for slow pairs, in float64: [head_dim / 2]."""
        w = super().frequencies(device)
        return w * (torch.arange(len(w), device=device) < self.rotating)
