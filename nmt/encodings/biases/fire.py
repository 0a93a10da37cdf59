"""Li et al. (2024), Functional Interpolation for Relative Positions (FIRE).

b(i, j) = MLP(psi(i - j) / psi(max(i, |m L0|))), psi(x) = log(|c x| + 1). Dividing by the query's
index keeps the MLP's input within [0, 1] at any length; below the learned threshold |m L0|, L0 =
512, the bias depends on the distance alone. MLP: 1 -> hidden -> ReLU -> heads.

The paper is causal. In the encoder (our extension): the distance |i - j| over the query's index, or
over the sentence's length (normaliser=length). Follows a public copy of the paper's appendix.
"""

from typing import Literal, cast

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding, set_to_zero

THRESHOLD = 512.0  # L0


class Fire(Encoding):
    """Learns the bias as a function of the normalised distance, per layer unless shared.

    Each function has 2 hidden + hidden x heads + heads + 2 parameters.
    """

    relative = True  # while no query is beyond |m L0|

    def __init__(
        self,
        dims: Dims,
        hidden: PositiveInt = 32,
        per_layer: bool = True,
        normaliser: Literal["query", "length"] = "query",
    ) -> None:
        super().__init__(dims)
        self.by_length = normaliser == "length" and dims.site == "encoder"
        count = dims.layers if per_layer else 1
        self.functions = nn.ModuleList(DistanceBias(hidden, dims.heads) for _ in range(count))

    @property
    def curves(self) -> list["DistanceBias"]:
        """The functions of the layers, or the one of all."""
        return cast(list[DistanceBias], list(self.functions))

    def zero_initialise(self) -> bool:
        """Set the last layer of every MLP to zero."""
        return set_to_zero(*(p for curve in self.curves for p in curve.last.parameters()))

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """[batch | 1, heads, query, key]; computed once per pass where layers share it."""
        number = layer if len(self.functions) > 1 else 0
        curve = self.curves[number]
        return context.once(
            ("fire", id(self), number),
            lambda: curve(context.delta.abs(), self._normaliser(context)),
        )

    def _normaliser(self, context: Context) -> Tensor:
        """The denominator of distances [batch | 1, query | 1]: no padding enters."""
        if not self.by_length:
            return context.query_positions
        if context.lengths is None:
            raise ValueError("normaliser=length: no lengths of sentences in this context")
        return context.lengths[:, None]


class DistanceBias(nn.Module):
    """Learned: distances [.., query, key] over [.., query | 1] -> one bias per head."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.c = nn.Parameter(torch.tensor(0.1))
        self.m = nn.Parameter(torch.tensor(1.0))
        self.first = nn.Linear(1, hidden)
        self.last = nn.Linear(hidden, heads)

    def forward(self, distance: Tensor, normaliser: Tensor) -> Tensor:
        """[.., query, key], [.., query | 1] -> [.., heads, query, key]."""
        # bfloat16 cannot distinguish the 300th key from the 301st
        with torch.autocast(distance.device.type, enabled=False):
            dtype = self.c.dtype
            longest = torch.maximum(normaliser.to(dtype), (self.m * THRESHOLD).abs())[..., None]
            x = self._psi(distance.to(dtype)) / (self._psi(longest) + 1e-6)
            biases: Tensor = self.last(self.first(x[..., None]).relu())
        return biases.movedim(-1, -3)

    def _psi(self, x: Tensor) -> Tensor:
        return torch.log1p((self.c * x).abs())
