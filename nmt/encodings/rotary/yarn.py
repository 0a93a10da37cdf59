"""Peng, Quesnelle, Fan, Shippole (2023), YaRN: rotary for texts `factor` times as long as before.

    w'_b = g_b w_b + (1 - g_b) w_b / factor;   q and k rotated, and both times 0.1 ln(factor) + 1

What turned often in the `original` positions keeps its angle (g = 1), what did not turn once there
is slowed down so that longer texts stay within the angles that were trained (g = 0). In between g
falls linearly; the last factor makes softmax sharper among more keys.

ramp says over what it falls. components: over the number of the pair, from the last one that turns
beta_fast times (rounded down) to the first one that turns beta_slow times (rounded up), as the
authors' code (jquesnelle/yarn) and transformers have it. turns: over the number of turns
r_b = original w_b / 2 pi, g = (r - beta_slow) / (beta_fast - beta_slow), the formula of the paper.
Both were designed for contexts of thousands of tokens: of 64 positions no pair turns 32 times.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from nmt.config.check import NonNegativeFloat, PositiveFloat
from nmt.encodings.base import Dims
from nmt.encodings.rotary.rotary import Base, Factor, Rotary
from nmt.encodings.sinusoids import Layout


class Yarn(Rotary):
    """Rotates queries and keys, slow pairs more slowly than in training; learns nothing."""

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        partial: float = 1.0,
        factor: Factor = 4.0,
        original: int = 64,
        beta_fast: float = 32.0,
        beta_slow: PositiveFloat = 1.0,
        ramp: Literal["components", "turns"] = "components",
        attention: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__(dims, base, layout, partial)
        if beta_slow >= beta_fast:
            raise ValueError(f"beta_slow={beta_slow}: must be below beta_fast={beta_fast}")
        if original <= 2 * math.pi * beta_slow:
            turns = f"to turn {beta_slow:g} times takes more than {2 * math.pi * beta_slow:.1f}"
            raise ValueError(f"original={original}: too few positions, {turns}")
        self.factor, self.original, self.ramp = factor, original, ramp
        self.beta_fast, self.beta_slow = beta_fast, beta_slow
        self.magnitude = attention or 0.1 * math.log(factor) + 1

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Angles by which neighbours differ, in float64: [rotary_dim / 2]."""
        w = super().frequencies(device)
        unscaled = self._ramp(w)
        return w * (unscaled + (1 - unscaled) / self.factor)

    def _ramp(self, w: Tensor) -> Tensor:
        """The share g of frequencies w that stay as they were: [rotary_dim / 2]."""
        if self.ramp == "turns":
            turns = self.original * w / (2 * math.pi)
            return ((turns - self.beta_slow) / (self.beta_fast - self.beta_slow)).clamp(0, 1)
        first = max(math.floor(self._pair(self.beta_fast)), 0)
        last = min(math.ceil(self._pair(self.beta_slow)), self.rotary_dim - 1)
        b = torch.arange(len(w), dtype=w.dtype, device=w.device)
        return 1 - ((b - first) / max(last - first, 0.001)).clamp(0, 1)

    def _pair(self, turns: float) -> float:
        """The number of the pair that turns so often in the original positions, as a fraction."""
        wavelength = self.original / (turns * 2 * math.pi)
        return self.rotary_dim * math.log(wavelength) / (2 * math.log(self.base))
