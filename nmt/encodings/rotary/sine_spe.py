"""Liutkus et al. (2021), Relative Positional Encoding for Transformers with Linear Complexity: SPE.

Each feature d of a head gets a template of distances, and a gate that can let it through as it is:
e_ij = (1 / sqrt(head_dim)) sum_d q_id k_jd [g_d + (1 - g_d) P_d(i - j)],
P_d(x) = 1 / (2K) sum_k lambda_dk^2 cos(2 pi f_dk x + theta_dk), frequencies f from 0 to 1/2.

The paper estimates this with R random features, so that attention can be linear in the length.
Under a softmax no estimate is needed: a cosine of i - j is a product of waves of i and j, so
q_id sqrt(1 - g_d) lambda_dk / sqrt(2K) [cos, sin](2 pi f_dk i + theta_dk), the same of k_jd without
theta, and sqrt(g_d) q_id are features with exactly these products (mode=exact).
mode=stochastic multiplies them with a Gaussian matrix of R columns over sqrt(R), which is the
paper's estimate: one draw per pass in training, one fixed draw otherwise.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, Projection


class SineSpe(Encoding):
    """Replaces queries and keys by wider ones whose products depend on the distance.

    Layers share 3 K head_dim heads parameters of the templates; each has head_dim heads gates.
    Exact queries and keys, cached ones too, have (2K + 1) head_dim components, stochastic R.
    """

    relative = True  # the exact mode; an estimate holds for shifts on average
    changes_width = True
    noise: Tensor | None  # [heads, features, R]; the draw outside training

    def __init__(
        self,
        dims: Dims,
        mode: Literal["exact", "stochastic"] = "exact",
        waves: PositiveInt = 10,
        gated: bool = True,
        realizations: PositiveInt | None = None,
    ) -> None:
        super().__init__(dims)
        self.relative = mode == "exact"
        if mode == "exact" and realizations is not None:
            raise ValueError(f"realizations={realizations}: mode=exact draws nothing")
        if mode == "stochastic" and realizations is None:
            raise ValueError("realizations=null: mode=stochastic needs at least 1")
        shape = (dims.heads, dims.head_dim, waves)
        gains = torch.randn(shape)
        # initial values as the authors' code has them: low frequencies, so long waves
        self.raw_frequencies = nn.Parameter(torch.randn(shape) - 4)
        self.raw_gains = nn.Parameter(2 * gains / gains.norm(dim=-1, keepdim=True).sqrt())
        self.phases = nn.Parameter(torch.randn(shape))
        self.gate = nn.Parameter(torch.randn(dims.layers, *shape[:2])) if gated else None
        noise = None
        if realizations is not None:
            features = dims.head_dim * (2 * waves + gated)
            draw = torch.Generator().manual_seed(0)
            size = (dims.heads, features, realizations)
            noise = torch.randn(size, generator=draw, device="cpu")
        self.register_buffer("noise", noise, persistent=False)

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Features [batch, heads, n, (2K + 1) head_dim | R] of q and k; v stays as it is."""
        q, k, v = project(xq, xk, xv)
        q = self._features(q, "query_positions", layer, context)
        return q, self._features(k, "new_key_positions", layer, context), v

    def _features(self, x: Tensor, which: str, layer: int, context: Context) -> Tensor:
        code = context.once(("sine_spe", which, id(self)), lambda: self._code(which, context))
        wide = x.to(code.dtype)[..., None]  # [batch, heads, n, head_dim, 1]
        if self.gate is None:
            features = wide * code
        else:
            gate = self.gate[layer][:, None, :, None]  # [heads, 1, head_dim, 1]
            waves = wide * code * (-gate).sigmoid().sqrt()
            features = torch.cat([waves, wide * gate.sigmoid().sqrt()], dim=-1)
        features = features.flatten(-2)
        if self.noise is not None:
            noise = context.once(("sine_spe noise", id(self)), lambda: self._noise(context))
            features = features @ noise * noise.shape[-1] ** -0.5
        return features.to(x.dtype)

    def _code(self, which: str, context: Context) -> Tensor:
        """lambda / sqrt(2K) [cos, sin] of a wave at each position.

        [batch | 1, heads, n, head_dim, 2K]; angles in float64, since bfloat16 knows no 301.
        """
        at = getattr(context, which).to(torch.float64)[:, None, :, None, None]
        angle = math.pi * self.raw_frequencies.sigmoid()[:, None] * at  # 2 pi f, f = sigmoid / 2
        if which == "query_positions":
            angle = angle + self.phases[:, None]
        gains = F.softplus(self.raw_gains) * (2 * self.phases.shape[-1]) ** -0.5
        waves = torch.stack([angle.cos(), angle.sin()], dim=-1).to(gains.dtype)
        return (gains[:, None, ..., None] * waves).flatten(-2)

    def _noise(self, context: Context) -> Tensor:
        """One matrix for queries and keys, for all layers and positions of a pass."""
        assert self.noise is not None
        return torch.randn_like(self.noise) if context.training else self.noise
