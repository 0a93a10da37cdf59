"""You, Sun, Iyyer (2020), Hard-Coded Gaussian Attention for Neural Machine Translation.

    p_ij = exp(-(j - r i - o_h)^2 / (2 std^2)) / (std sqrt(2 pi))

Attention without learning: each head looks at the words around its centre r i + o_h. o_h is -offset
or +offset by turns, but -offset or 0 in the decoder. In the cross-attention r is `ratio`, the
source words for each word of the target, and elsewhere 1. Queries and keys are not read.

As in the authors' code (fallcat/stupidNMT), weights are densities: those of a row add up to about
1, and to less at the ends of a sentence. Its models have std = offset = 1 and no projections of
queries and keys. Their translations were worse without learned attention to the source.
"""

import math

import torch
from torch import Tensor

from nmt.config.check import NonNegativeFloat, PositiveFloat
from nmt.encodings.base import Context, Dims, Encoding


class Gaussian(Encoding):
    """Weighs keys by a normal density around a position near the query; learns nothing."""

    relative = True
    distances_only = True
    may_lack_gradients = True
    reads_queries_or_keys = False
    centres: Tensor  # [heads, 1, 1]

    def __init__(
        self,
        dims: Dims,
        offset: NonNegativeFloat = 1.0,
        std: PositiveFloat = 1.0,
        ratio: PositiveFloat = 1.0,
    ) -> None:
        ratio = ratio if dims.site == "cross" else 1.0
        super().__init__(dims)
        self.relative = ratio == 1
        self.std, self.ratio = std, ratio
        centres = [-offset, 0.0 if dims.site == "decoder" else offset]
        of_heads = torch.tensor([centres[head % 2] for head in range(dims.heads)])
        self.register_buffer("centres", of_heads[:, None, None], persistent=False)

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """The density of each distance, the same in every layer; as e, [.., query, key]."""

        def make() -> Tensor:
            delta = context.delta
            if self.ratio != 1:
                i, j = context.query_positions, context.key_positions
                delta = j[:, None, :] - self.ratio * i[..., None].double()
            z = (delta[:, None] - self.centres.double()) / self.std
            return (-z.square() / 2).exp() / (self.std * math.sqrt(2 * math.pi))

        p: Tensor = context.once(("gaussian", id(self)), make)
        p = p.to(e.dtype).expand_as(e)
        return p if context.allowed is None else p.masked_fill(~context.allowed, 0)
