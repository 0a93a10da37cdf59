"""The rotations of YaRN (Peng et al. 2023), as a package of somebody else's has them."""

import math

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding, Projection


class SlowerTurns(Encoding):
    """Turns queries and keys, in a text `factor` times as long as `original` no further."""

    relative = True
    turns: Tensor

    def __init__(
        self,
        dims: Dims,
        factor: float = 4.0,
        original: int = 64,
        fast: float = 32.0,
        slow: float = 1.0,
    ) -> None:
        super().__init__(dims)
        width = dims.head_dim
        first, last = (
            width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(10000))
            for turns in (fast, slow)
        )
        low, high = max(math.floor(first), 0), min(math.ceil(last), width - 1)
        pair = torch.arange(width // 2, dtype=torch.float64)
        slowed = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
        turns = 10000 ** (-2 * pair / width)
        self.register_buffer("turns", turns * (1 - slowed + slowed / factor), persistent=False)
        self.magnitude = 0.1 * math.log(factor) + 1

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn q and k [batch, heads, n, head_dim] by their positions."""
        q, k, v = project(xq, xk, xv)
        return (
            self._turned(q, context.query_positions),
            self._turned(k, context.new_key_positions),
            v,
        )

    def _turned(self, x: Tensor, at: Tensor) -> Tensor:
        angle = (at[..., None] * self.turns)[:, None]
        cos, sin = ((wave * self.magnitude).to(x.dtype) for wave in (angle.cos(), angle.sin()))
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
