"""Chi, Fan, Ramadge, Rudnicky (2022), KERPLE: kernelised relative positions.

log: b_h = -p_h log(1 + a_h |i - j|); power: b_h = -a_h |i - j|^p_h with 0 < p_h < 2. Both are
conditionally positive definite kernels of the distance, learned; power with p = 1 is ALiBi with
learned slopes. Defined for causal attention; symmetric in the encoder (our extension).
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.encodings.base import Context, Dims, Encoding

LEAST = 0.01  # no parameter starts below; the authors' code keeps to this bound for good


class Kerple(Encoding):
    """Learns two positive numbers per head, shared by all layers: 2 heads.

    They are kept in their range by softplus (2 sigmoid for the power), where the authors' code
    clamps the parameters themselves and so stops learning at the bound.
    """

    relative = True
    distances_only = True

    def __init__(self, dims: Dims, form: Literal["log", "power"] = "log") -> None:
        super().__init__(dims)
        self.form = form
        p = torch.empty(dims.heads).uniform_(LEAST, 2 - LEAST)  # U(0, 2) and U(0, 1) in the paper
        a = torch.empty(dims.heads).uniform_(LEAST, 1)
        self.raw_p = nn.Parameter((p / 2).logit() if form == "power" else unsoftplus(p))  # [heads]
        self.raw_a = nn.Parameter(unsoftplus(a))  # [heads]

    @property
    def p(self) -> Tensor:
        """The factor of the logarithm, or the power, below 2: [heads]."""
        return 2 * self.raw_p.sigmoid() if self.form == "power" else F.softplus(self.raw_p)

    @property
    def a(self) -> Tensor:
        """The factor of the distance (log), or of its power: [heads]."""
        return F.softplus(self.raw_a)

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """[batch | 1, heads, query, key], the same in every layer."""

        def make() -> Tensor:
            distance = context.delta.abs()[:, None].to(self.raw_a.dtype)
            a, p = self.a[:, None, None], self.p[:, None, None]
            return -p * torch.log1p(a * distance) if self.form == "log" else -a * distance**p

        return context.once(("kerple", id(self)), make)


def unsoftplus(x: Tensor) -> Tensor:
    """The inverse of softplus, for x > 0."""
    return x + torch.log(-torch.expm1(-x))
