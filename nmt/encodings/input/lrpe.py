"""Takase and Okazaki (2019), Positional Encoding to Control Output Sequence Length: ratio form.

LRPE(t)[2b] = sin(t / n^(2b/d)), LRPE(t)[2b + 1] = cos(t / n^(2b/d)): the sinusoids of Vaswani et
al. with the desired length n of the output, eos included, instead of 10000.
"""

import torch
from torch import Tensor

from nmt.config.check import NonNegativeInt
from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.positions import draw_lengths


class LengthRatio(Encoding):
    """Adds sinusoids whose wavelengths grow with the desired length; nothing is learned.

    noise: see `Remaining`. A length of 1 would make all frequencies one, so it counts as 2.
    """

    needs_lengths = True

    def __init__(self, dims: Dims, noise: NonNegativeInt = 0) -> None:
        super().__init__(dims)
        if dims.dim % 2:
            raise ValueError(f"sinusoids need an even width, not {dims.dim}")
        self.noise = noise

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add LRPE(position) to x [batch, query, dim]."""
        n = draw_lengths(context, self.noise).clamp(min=2).to(torch.float64)  # [batch]
        b = torch.arange(self.dims.dim // 2, device=x.device, dtype=torch.float64)
        w = torch.exp(-n.log()[:, None] * 2 * b / self.dims.dim)  # [batch, dim / 2]
        at = context.query_positions.to(torch.float64)
        a = at[..., None] * w[:, None]  # [batch, query, dim / 2]
        return x + torch.stack([a.sin(), a.cos()], dim=-1).flatten(-2).to(x.dtype)
