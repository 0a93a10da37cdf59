"""Press, Smith, Lewis (2022), Train Short, Test Long: attention with linear biases."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context, Positions


class Alibi(Encoding):
    """Subtracts slope x distance from the scaled scores, with one fixed slope per head.

    Symmetric in the encoder, as the authors suggest for models that look both ways.
    """

    relative: ClassVar[bool] = True
    slopes: Tensor  # [heads]

    def __init__(self, dims: Dims, positions: Positions | None = None) -> None:
        super().__init__(dims, positions)
        slopes = torch.tensor(slopes_of(dims.heads), dtype=torch.float32)
        self.register_buffer("slopes", slopes, persistent=False)

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """-m_h |key - query|: [batch | 1, heads, query, key], the same in every layer."""

        def make() -> Tensor:
            distance = context.delta.abs().to(torch.float32)[:, None]
            return -self.slopes[:, None, None] * distance

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
