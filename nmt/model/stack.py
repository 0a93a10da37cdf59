"""A stack of layers: one for each pass, or one shared by all."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nmt.config.settings import Model
from nmt.encodings.context import Context
from nmt.encodings.site import Encodings
from nmt.model.recompute import RunLayer, recomputed


class Stack(nn.Module):
    """`layers` passes through layers, and the norm after the last one."""

    def __init__(self, config: Model, layers: int, make_layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.count = layers
        self.layers = nn.ModuleList(
            make_layer() for _ in range(1 if config.share_layers else layers)
        )
        final = config.norm == "pre"  # after post-norm layers nothing is left to normalise
        self.norm: nn.Module = nn.LayerNorm(config.dim) if final else nn.Identity()
        self.recompute = False  # layers in the backward pass, to save memory in training

    def forward(
        self, x: Tensor, encodings: Encodings, contexts: Sequence[Context], run: RunLayer
    ) -> Tensor:
        """x [batch x streams, length, dim] -> the same.

        `contexts`: all that the layers read, the one of the stack's own tokens first.
        """
        context = contexts[0]
        if self.recompute and context.training and torch.is_grad_enabled():
            run = recomputed(run)
        for number in range(self.count):
            inputs = encodings.layer(x, number, context)
            x = run(self.layers[number % len(self.layers)], inputs, number, contexts)
        return encodings.readout(self.norm(x), context)
