"""Dehghani, Gouws, Vinyals, Uszkoreit, Kaiser (2019), Universal Transformers: coordinates.

The stack goes through one layer again and again; before step l = 1, 2, ... it gets the position of
each token and the number of the step:

    x_t <- x_t + PE(t) + PE(l)

with Vaswani's sinusoids PE, on the residual path too. The shared layer is model.share_layers;
the paper's adaptive halting is left out.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.sinusoids import Denominator, Layout, frequencies, sinusoids


class Universal(Encoding):
    """Adds sinusoids of position and step to the input of every layer; no parameters."""

    def __init__(
        self, dims: Dims, layout: Layout = "interleaved", denominator: Denominator = "paper"
    ) -> None:
        super().__init__(dims)
        self.layout = layout
        self.denominator = denominator
        frequencies(dims.dim)  # refuses an odd width at once

    def layer_input(self, x: Tensor, layer: int, context: Context) -> Tensor:
        """Add PE(position) + PE(step) to x [batch, query, dim]; steps count all of the stack."""
        positions = context.once(
            ("universal", self.layout, self.denominator), lambda: self._pe(context.query_positions)
        )
        served = self.dims.served_layers
        number = layer if served is None else served[layer]
        step = self._pe(x.new_full((1,), number + 1, dtype=torch.long))
        return x + (positions + step).to(x.dtype)

    def _pe(self, at: Tensor) -> Tensor:
        return sinusoids(at, self.dims.dim, self.layout, self.denominator)
