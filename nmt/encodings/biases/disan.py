"""Shen, Zhou, Long, Jiang, Wang, Zhang (2018), DiSAN: directional masks.

In the encoder, the first half of the heads sees only what came before a token, the second half
only what follows (so in the authors' Fast-DiSA): order enters through what a head cannot see, and
nothing is learned. The paper's masks are strict (diagonal=false); by default a token also sees
itself. Of DiSAN, these masks alone: its attention with a weight per feature is no encoding.

A decoder looks back already, so there nothing changes.
"""

import torch
from torch import Tensor

from nmt.encodings.base import Context, Dims, Encoding
from nmt.encodings.biases.alibi import HIDDEN


class Disan(Encoding):
    """Masks each head of the encoder to one direction, in the order of the tokens."""

    sites = ("encoder", "decoder")  # directions exist within one sentence
    relative = True
    position_type = "none"

    def __init__(self, dims: Dims, diagonal: bool = True) -> None:
        super().__init__(dims)
        if dims.heads % 2:
            raise ValueError(f"{dims.heads} heads cannot be halved; use an even number")
        self.diagonal = diagonal

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """0 or, where hidden, very low: [batch | 1, heads, query, key]; None in the decoder."""
        if self.dims.site == "decoder":
            return None
        return context.once(("disan", id(self)), lambda: self._make(context))

    def _make(self, context: Context) -> Tensor:
        queries, keys = context.indices
        ahead = (keys[:, None] - queries[..., None])[:, None]  # [batch | 1, 1, query, key]
        visible = torch.cat([ahead <= 0, ahead >= 0], dim=1)  # [batch | 1, 2, query, key]
        if not self.diagonal:
            visible = self._strict(visible, ahead == 0, context)
        bias = torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, HIDDEN)
        return bias.repeat_interleave(self.dims.heads // 2, dim=1)

    def _strict(self, visible: Tensor, diagonal: Tensor, context: Context) -> Tensor:
        """Hide each token from diagonal, but where a head would then see no token at all.

        The authors' code gives such a row zeros, which a softmax cannot.
        """
        visible = visible & ~diagonal
        real = visible if context.allowed is None else visible & context.allowed
        return visible | (diagonal & ~real.any(-1, keepdim=True))
