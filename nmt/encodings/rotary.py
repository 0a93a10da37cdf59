"""Su, Lu, Pan, Wen, Liu (2021), RoFormer: rotary position embedding."""

from typing import ClassVar

import torch
from torch import Tensor

from nmt.encodings.base import Dims, Encoding, Projection
from nmt.encodings.context import Context, Positions
from nmt.encodings.sinusoids import LAYOUTS, angles, frequencies


class Rotary(Encoding):
    """Rotates queries and keys by their position; a product then depends on the distance only.

    Component pairs are turned by position x w_b, w_b = base^(-2b / head_dim). interleaved pairs
    neighbours (the paper), halves pairs b with b + head_dim / 2 (GPT-NeoX).
    """

    relative: ClassVar[bool] = True

    def __init__(
        self,
        dims: Dims,
        positions: Positions | None = None,
        base: float = 10000.0,
        layout: str = "interleaved",
    ) -> None:
        super().__init__(dims, positions)
        if layout not in LAYOUTS:
            raise ValueError(f"layout={layout}: choose one of {', '.join(LAYOUTS)}")
        if base <= 1:
            raise ValueError(f"base={base}: must be above 1")
        self.base = base
        self.layout = layout
        frequencies(dims.head_dim, base=base)  # refuses an odd width at once

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn q and k after their projection; v stays as it is."""
        q, k, v = project(xq, xk, xv)
        return self._turn(q, "queries", context), self._turn(k, "new_keys", context), v

    def _turn(self, x: Tensor, which: str, context: Context) -> Tensor:
        cos, sin = context.once(("rotary", which, self.base), lambda: self._angles(which, context))
        if self.layout == "interleaved":
            a, b = x[..., 0::2], x[..., 1::2]
        else:
            a, b = x.chunk(2, dim=-1)
        turned = (a * cos - b * sin, a * sin + b * cos)  # in float32, whatever the model's type
        if self.layout == "interleaved":
            return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
        return torch.cat(turned, dim=-1).to(x.dtype)

    def _angles(self, which: str, context: Context) -> tuple[Tensor, Tensor]:
        """Cosines and sines [batch | 1, 1, length, head_dim / 2] in float32."""
        positions: Tensor = getattr(context, which)
        a = angles(positions, frequencies(self.dims.head_dim, base=self.base))[:, None]
        return a.cos().to(torch.float32), a.sin().to(torch.float32)
