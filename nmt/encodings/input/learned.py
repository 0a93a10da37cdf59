"""Gehring et al. (2017), Convolutional Sequence to Sequence Learning: learned positions."""

from typing import Literal

import torch
from torch import Tensor, nn

from nmt.config.check import PositiveInt
from nmt.encodings.base import Context, Dims, Encoding


class Learned(Encoding):
    """Adds a learned vector for each of the first `size` positions to the embeddings.

    size dim parameters per stack. With trainable=false the vectors stay as they were drawn, which
    ties a model less to the order of words (Liu et al. 2021, On the Importance of Word Order
    Information in Cross-lingual Sequence Labeling, freeze a pre-trained table).
    """

    position_type = "integer"
    zeros = ("weight",)
    weight: Tensor  # [size, dim]

    def __init__(
        self,
        dims: Dims,
        size: PositiveInt = 1024,
        beyond: Literal["refuse", "clip"] = "refuse",
        trainable: bool = True,
    ) -> None:
        super().__init__(dims)
        self.num_positions = None if beyond == "clip" else size
        self.size = size
        self.beyond = beyond
        self.trainable = trainable
        weight = torch.randn(size, dims.dim) * dims.dim**-0.5
        if trainable:
            self.weight = nn.Parameter(weight)
        else:  # saved with the model all the same
            self.register_buffer("weight", weight)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Add the row of each position to x [batch, query, dim]."""
        at = context.query_positions
        if self.beyond == "clip":
            at = at.clamp(0, self.size - 1)
        return x + self.weight[at].to(x.dtype)
