"""You, Sun, Iyyer (2020), Hard-Coded Gaussian Attention for Neural Machine Translation.

    p_ij = exp(-(j - i - o_h)^2 / (2 std^2)) / (std sqrt(2 pi))

Attention without learning: each head looks at the words around its centre o_h, which is -offset or
+offset in the encoder and -offset or 0 in the decoder, by turns. Queries and keys are not read.
As in the authors' code (fallcat/stupidNMT), weights are densities: those of a row add up to about
1, and to less at the ends of a sentence. Its models have std = offset = 1, learned attention to the
source, and no projections of queries and keys; here these stay, and learn nothing. Nor does any
other entry in the same heads that changes queries, keys or scores, or adds a bias.
"""

import math

import torch
from torch import Tensor

from nmt.config.check import NonNegativeFloat, PositiveFloat
from nmt.encodings.base import Context, Dims, Encoding


class Gaussian(Encoding):
    """Weighs keys by a normal density around a place near the query; learns nothing."""

    relative = True
    distances_only = True
    may_lack_gradients = True
    centres: Tensor  # [heads, 1, 1]

    def __init__(
        self, dims: Dims, offset: NonNegativeFloat = 1.0, std: PositiveFloat = 1.0
    ) -> None:
        super().__init__(dims)
        if dims.site == "cross":
            raise ValueError("where=cross: the centre is a place in the same text")
        self.std = std
        centres = [-offset, offset if dims.site == "encoder" else 0.0]
        of_heads = torch.tensor([centres[head % 2] for head in range(dims.heads)])
        self.register_buffer("centres", of_heads[:, None, None], persistent=False)

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """The density of each distance, the same in every layer; as e, [.., query, key]."""

        def make() -> Tensor:
            z = (context.delta[:, None] - self.centres.double()) / self.std
            return (-z.square() / 2).exp() / (self.std * math.sqrt(2 * math.pi))

        p: Tensor = context.once(("gaussian", id(self)), make)
        p = p.to(e.dtype).expand_as(e)
        return p if context.allowed is None else p.masked_fill(~context.allowed, 0)
