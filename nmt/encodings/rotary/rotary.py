"""Su, Lu, Pan, Wen, Liu (2021), RoFormer: rotary position embedding (RoPE).

q'_i = R(i) q_i, k'_j = R(j) k_j, where R(t) rotates each pair b of components by the angle t w_b,
w_b = base^(-2b / head_dim). A product of the two depends on positions through j - i alone.

partial < 1 rotates the first share of the components only, as GPT-NeoX does. To read further than
was trained: scaling=linear divides positions by `factor` (Chen et al. 2023), scaling=ntk leaves
them and multiplies the base by factor^(r / (r - 2)), r components rotated (bloc97 2023), so that
the slowest pair rotates as under linear scaling and the fastest as before. YaRN is an encoding of
its own (`yarn.py`).
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from nmt.config.check import Between
from nmt.encodings.base import Context, Dims, Encoding, Projection
from nmt.encodings.sinusoids import Layout, angles, frequencies

Base = Annotated[float, Between(1, above=True)]
Factor = Annotated[float, Between(1)]


class Rotary(Encoding):
    """Rotates queries and keys by their position; learns nothing.

    layout: interleaved rotates neighbours (the paper), halves pairs b with b + r / 2 (GPT-NeoX).
    """

    relative = True
    magnitude: float = 1.0  # of the rotated components (YaRN)

    def __init__(
        self,
        dims: Dims,
        base: Base = 10000.0,
        layout: Layout = "interleaved",
        partial: float = 1.0,
        scaling: Literal["none", "linear", "ntk"] = "none",
        factor: Factor = 1.0,
    ) -> None:
        rotary_dim = round(dims.head_dim * partial)
        if partial != 1 and not (2 <= rotary_dim < dims.head_dim and rotary_dim % 2 == 0):
            raise ValueError(
                f"partial={partial}: must leave an even number of {dims.head_dim} components to "
                f"rotate, not {rotary_dim}"
            )
        super().__init__(dims)
        self.rotary_dim, self.layout = rotary_dim, layout
        self.base, self.scaling, self.factor = base, scaling, factor
        if (scaling == "none") != (factor == 1):
            raise ValueError(
                f"scaling={scaling}, factor={factor}: the factor must be 1 with scaling=none, and "
                "greater with linear and ntk"
            )
        if scaling == "ntk":
            if rotary_dim < 4:
                raise ValueError("scaling=ntk: needs at least 4 components to rotate")
            self.base = base * factor ** (self.rotary_dim / (self.rotary_dim - 2))
        frequencies(rotary_dim)  # refuses an odd width

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Angles by which neighbours differ, in float64: [rotary_dim / 2]."""
        w = frequencies(self.rotary_dim, base=self.base, device=device)
        return w / self.factor if self.scaling == "linear" else w

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate q and k after their projection; v stays as it is."""
        q, k, v = project(xq, xk, xv)
        dtype = torch.promote_types(q.dtype, torch.float32)  # whatever the model's type
        at_queries = self.cosines_and_sines("query_positions", dtype, layer, context)
        at_keys = self.cosines_and_sines("new_key_positions", dtype, layer, context)
        return self.rotate(q, *at_queries), self.rotate(k, *at_keys), v

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate pairs of x [batch, heads, n, head_dim] by angles [.., n, rotary_dim / 2]."""
        rest = x[..., self.rotary_dim :]
        a, b = pair(x[..., : self.rotary_dim], self.layout)
        rotated = self.unpair(a * cos - b * sin, a * sin + b * cos).to(x.dtype)
        return rotated if self.rotary_dim == x.shape[-1] else torch.cat([rotated, rest], dim=-1)

    def unpair(self, a: Tensor, b: Tensor) -> Tensor:
        """The inverse of `pair`."""
        if self.layout == "interleaved":
            return torch.stack((a, b), dim=-1).flatten(-2)
        return torch.cat((a, b), dim=-1)

    def cosines_and_sines(
        self, which: str, dtype: torch.dtype, layer: int, context: Context
    ) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions x w: [batch | 1, heads | 1, n, rotary_dim / 2] each."""

        def make() -> tuple[Tensor, Tensor]:
            at = getattr(context, which)
            a = angles(at, self.frequencies(at.device))[:, None]
            return (a.cos() * self.magnitude).to(dtype), (a.sin() * self.magnitude).to(dtype)

        return context.once(("rotary", which, dtype, id(self)), make)


def pair(x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """The two components of each pair: [.., rotary_dim] -> twice [.., rotary_dim / 2]."""
    if layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    a, b = x.chunk(2, dim=-1)
    return a, b
