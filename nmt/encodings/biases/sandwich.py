"""Chi, Fan, Rudnicky, Ramadge (2023), Dissecting Transformer Length Extrapolation: Sandwich.

b_h(i, j) = (PE(i) . PE(j) - D/2) / (8h / heads), h = 1..heads: of the inner product of sinusoidal
encodings, only the part that two positions make with each other. PE(i) . PE(j) is the sum of
cos((i - j) 10000^(-2b/D)) over b = 1..D/2, at most D/2, so the bias is 0 at distance 0 and
negative elsewhere. Reconstructed from NVIDIA NeMo's code; the paper's own text was not at hand.
Symmetric in the encoder (our extension).
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import angles


class Sandwich(Encoding):
    """Adds a fixed function of the distance, steeper in the first heads. Learns nothing."""

    relative = True

    def __init__(self, dims: Dims, width: int = 128) -> None:
        super().__init__(dims)
        if width < 2 or width % 2:
            raise ValueError(f"width={width}: must be even and at least 2")
        self.width = width

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """[batch | 1, heads, query, key] in float32, the same in every layer."""
        return context.once(("sandwich", id(self)), lambda: self._make(context))

    def _make(self, context: Context) -> Tensor:
        heads = torch.arange(1, self.dims.heads + 1, device=context.query_positions.device)
        at_query, at_key = map(self._sinusoids, (context.query_positions, context.key_positions))
        products = at_query @ at_key.mT - self.width / 2
        return (products[:, None] * (self.dims.heads / 8 / heads)[:, None, None]).to(torch.float32)

    def _sinusoids(self, positions: Tensor) -> Tensor:
        """[batch | 1, n] -> float64 [batch | 1, n, width]; frequencies count from b = 1."""
        device = positions.device
        b = torch.arange(1, self.width // 2 + 1, dtype=torch.float64, device=device)
        a = angles(positions, 10000 ** (-2 * b / self.width))
        return torch.cat([a.cos(), a.sin()], dim=-1)
