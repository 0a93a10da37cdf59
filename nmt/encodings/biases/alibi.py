"""Press, Smith, Lewis (2022), Train Short, Test Long: attention with linear biases (ALiBi).

e_ij = q_i . k_j / sqrt(head_dim) - m_h |i - j|, with fixed slopes m_h = 2^(-8h / heads). The paper
has causal attention only. For encoders its authors suggest the symmetric form above; with
directional=true, half of the heads look back and the other half ahead (an arrangement of nmt).
"""

import math

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding, at_least_float32

HIDDEN = torch.finfo(torch.bfloat16).min / 2
"""Hides a key from a head, finitely: a row that may see nothing must not become NaN."""


class Alibi(Encoding):
    """Subtracts slope x distance from the scaled scores, with one fixed slope per head.

    Directional changes the encoder only: half of the heads see themselves and earlier positions,
    the other half themselves and later ones; both halves have the slopes of heads / 2 heads.
    """

    relative = True
    distances_only = True
    slopes: Tensor  # [heads]

    def __init__(self, dims: Dims, directional: bool = False) -> None:
        super().__init__(dims)
        if directional and dims.heads % 2:
            raise ValueError(f"directional=true: {dims.heads} heads cannot be halved")
        self.directional = directional and dims.site == "encoder"
        half = slopes_of(dims.heads // 2) * 2 if self.directional else slopes_of(dims.heads)
        slopes = torch.tensor(half, dtype=torch.float32)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """-m_h |key - query|: [batch | 1, heads, query, key], the same in every layer."""

        def make() -> Tensor:
            slopes = at_least_float32(self.slopes)  # float16 cannot hold what hides a key
            delta = context.delta.to(slopes.dtype)[:, None]
            bias = -slopes[:, None, None] * delta.abs()
            if not self.directional:
                return bias
            back, ahead = bias.chunk(2, dim=1)
            hidden = (back.masked_fill(delta > 0, HIDDEN), ahead.masked_fill(delta < 0, HIDDEN))
            return torch.cat(hidden, dim=1)

        return context.once(("alibi", id(self)), make)


def slopes_of(heads: int) -> list[float]:
    """2^(-8 h / heads), h = 1..heads, where heads is a power of two.

    Otherwise the slopes of the next smaller power, then every second one of twice that power.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    if power < heads:
        slopes += slopes_of(2 * power)[0::2][: heads - power]
    return slopes
