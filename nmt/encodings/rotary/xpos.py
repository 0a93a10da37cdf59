"""Sun et al. (2023), A Length-Extrapolatable Transformer: rotary with decay (xPos).

After RoPE, q'_i *= z^(i / scale_base) and k'_j *= z^(-j / scale_base), with
z_b = (2b / head_dim + 0.4) / 1.4 for pair b: scores shrink with z^((i - j) / scale_base), the
faster-rotating pairs first. The authors' code centres positions at half of the length and rotates
all cached keys again at each step; the centre cancels in the product, so here it is fixed at 0.

The decay holds for keys in the past only: ahead it would grow. So the encoder gets plain RoPE.
From a fixed centre, the factor of a key grows with its position: a decoder has 64 scale_base.
"""

import torch
from torch import Tensor

from nmt.config.check import PositiveFloat
from nmt.encodings.base import ENDLESS, Context, Dims, Projection
from nmt.encodings.positions import check_ascending
from nmt.encodings.rotary.rotary import Base, Rotary
from nmt.encodings.sinusoids import Layout


class Xpos(Rotary):
    """Rotates queries and keys, and in the decoder lets their products decay. Learns nothing."""

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        scale_base: PositiveFloat = 512.0,
    ) -> None:
        super().__init__(dims, base, layout)
        check_ascending(self.positions, dims.site)
        self.scale_base = scale_base
        if dims.site == "decoder":
            # at 70 scale_base float32 has no z^(-j / scale_base)
            self.num_positions = int(min(64 * scale_base, ENDLESS))

    def zeta(self, device: torch.device | None = None) -> Tensor:
        """z_b in float64: [head_dim / 2]."""
        b = torch.arange(self.rotary_dim // 2, dtype=torch.float64, device=device)
        return (2 * b / self.rotary_dim + 0.4) / 1.4

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate q and k, and scale them in the decoder; v stays as it is."""
        q, k, v = super().project(project, xq, xk, xv, layer, context)
        if self.dims.site != "decoder":
            return q, k, v
        q = self._scale(q, "query_positions", 1, context)
        return q, self._scale(k, "new_key_positions", -1, context), v

    def _scale(self, x: Tensor, which: str, sign: int, context: Context) -> Tensor:
        """Multiply x [batch, heads, n, head_dim] with z^(sign position / scale_base)."""
        dtype = torch.promote_types(x.dtype, torch.float32)

        def make() -> Tensor:
            at = getattr(context, which).to(torch.float64)[:, None, :, None]
            z = self.zeta(at.device) ** (sign * at / self.scale_base)
            return self.unpair(z, z).to(dtype)  # [batch | 1, 1, n, head_dim]

        return (x * context.once(("xpos", which, dtype, id(self)), make)).to(x.dtype)
