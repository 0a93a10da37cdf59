"""Hua et al. (2025), Fourier Position Embedding (FoPE): rotary with series of frequencies.

    c_b(t) = sum_a C_ab cos(w_a t),   s_b(t) = sum_a S_ab sin(w_a t)
    (x, y) of pair b becomes (x c_b - y s_b, x s_b + y c_b),   for queries and keys

Frequencies leak into each other in a trained network, so every pair has small amounts of all other
frequencies from the start: C and S are the identity plus noise, drawn for each layer and head and
never trained. Only frequencies that turn once in training count, w_a >= 2 pi / original.

form=authors is their code (TsinghuaC3I/Fourier-Position-Embedding); the paper's text was not at
hand. At most head_dim / 4 pairs have series: of more frequencies, every second (third, ..) has a
pair, and pairs that are left over have noise alone. All other pairs have c = s = 1, which turns
them by 45 degrees and doubles their products. With form=vllm, as vLLM runs trained models, each
frequency has its pair, and the other pairs stay as they are: c = 1, s = 0.

A product of two such series depends on both positions, not on their distance alone.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import NonNegativeFloat
from nmt.encodings.base import Context, Dims
from nmt.encodings.rotary.rotary import Base, Rotary
from nmt.encodings.sinusoids import Layout, angles


class Fope(Rotary):
    """Multiplies queries and keys by series of sinusoids of their position; learns nothing.

    The noise is Xavier's normal of tensors [heads, frequencies, pairs]: its standard deviation is
    gain sqrt(2 / (pairs (frequencies + heads))). C and S are saved with the model.
    """

    relative = False
    coefficients: Tensor  # C and S [layers, 2, heads, frequencies, pairs with series]

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        original: int = 64,
        gain: NonNegativeFloat = 0.3,
        form: Literal["authors", "vllm"] = "authors",
    ) -> None:
        super().__init__(dims, base, layout)
        if original <= 2 * math.pi:
            raise ValueError(f"original={original}: no pair turns once; it takes 7 positions")
        self.form, slowest = form, 2 * math.pi / original
        w = (base ** (-2 * b / dims.head_dim) for b in range(dims.head_dim // 2))
        self.turning = turning = sum(frequency >= slowest for frequency in w)
        pairs = turning if form == "vllm" else min(turning, max(dims.head_dim // 4, 1))
        noise = torch.empty(dims.layers, 2, dims.heads, turning, pairs)
        for one in noise.flatten(0, 1):
            nn.init.xavier_normal_(one, gain)
        identity = torch.eye(turning)[:, :: math.ceil(turning / pairs)]
        identity = F.pad(identity, (0, pairs - identity.shape[1]))
        self.register_buffer("coefficients", identity + noise)

    def cosines_and_sines(
        self, which: str, dtype: torch.dtype, layer: int, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Both series at the positions: [batch | 1, heads, n, head_dim / 2] each."""

        def make() -> Tensor:
            at = getattr(context, which)
            a = angles(at, self.frequencies(at.device)[: self.turning])[:, None]
            return torch.stack([a.cos(), a.sin()])  # [2, batch | 1, 1, n, frequencies]

        waves = context.once(("fope", which, id(self)), make)
        c, s = waves @ self.coefficients[layer, :, None].to(waves.dtype)
        rest = (0, self.rotary_dim // 2 - c.shape[-1])
        sine = 1.0 if self.form == "authors" else 0.0
        return F.pad(c, rest, value=1.0).to(dtype), F.pad(s, rest, value=sine).to(dtype)
