"""Hua et al. (2025), Fourier Position Embedding (FoPE): rotary with series of frequencies.

    c_b(t) = cos(w_b t) + sum_a C_ab cos(w_a t),   s_b(t) = sin(w_b t) + sum_a S_ab sin(w_a t)
    (x, y) of pair b becomes (x c_b - y s_b, x s_b + y c_b),   for queries and keys

Frequencies leak into each other in a trained network, so every pair has small amounts of all others
from the start: numbers C and S of each head, which are drawn once and never trained. Pairs that do
not turn once in training, w_b < 2 pi / original, stay as they are: their frequency is 0.

A product of two such series depends on both positions, not on their distance alone. The paper's
text was not at hand: this is the form of vLLM. Copies of the authors' code divide each series by
the sum of its amounts, and give slow pairs a sine of 1 as well, which doubles their products.
"""

import math

import torch
from torch import Tensor

from nmt.config.check import NonNegativeFloat
from nmt.encodings.base import Context, Dims
from nmt.encodings.rotary.rotary import Base, Rotary
from nmt.encodings.sinusoids import Layout, angles


class Fope(Rotary):
    """Multiplies queries and keys by series of sinusoids of their position; learns nothing.

    C and S: gain / sqrt(pairs that turn) times normal numbers (Xavier), saved with the model.
    """

    relative = False
    coefficients: Tensor  # I + C and I + S [2, heads, pairs that turn, pairs that turn]

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        original: int = 64,
        gain: NonNegativeFloat = 0.3,
    ) -> None:
        super().__init__(dims, base, layout)
        if original <= 2 * math.pi:
            raise ValueError(f"original={original}: no pair turns once; it takes 7 positions")
        slowest = 2 * math.pi / original
        w = (base ** (-2 * b / dims.head_dim) for b in range(dims.head_dim // 2))
        self.turning = sum(frequency >= slowest for frequency in w)
        drawn = torch.randn(2, dims.heads, self.turning, self.turning) * gain
        eye = torch.eye(self.turning)
        self.register_buffer("coefficients", eye + drawn / math.sqrt(self.turning))

    def cosines_and_sines(
        self, which: str, dtype: torch.dtype, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Both series at the positions: [batch | 1, heads, n, head_dim / 2] each."""

        def make() -> tuple[Tensor, Tensor]:
            at = getattr(context, which)
            a = angles(at, self.frequencies(at.device)[: self.turning])[:, None]
            c, s = torch.stack([a.cos(), a.sin()]) @ self.coefficients[:, None].to(a.dtype)
            still = c.new_zeros(*c.shape[:-1], self.rotary_dim // 2 - self.turning)
            return torch.cat([c, still + 1], -1).to(dtype), torch.cat([s, still], -1).to(dtype)

        return context.once(("fope", which, dtype, id(self)), make)
