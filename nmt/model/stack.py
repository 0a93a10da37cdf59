"""A stack of layers: one for each pass or one shared by all, and when a token leaves it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import Model
from nmt.encodings.composition import Encodings
from nmt.encodings.context import Context
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
        self.halting = Halting(config.dim, config.halting_threshold) if config.halting else None
        self.recompute = False  # layers in the backward pass, to save memory in training

    def forward(
        self, x: Tensor, encodings: Encodings, contexts: Sequence[Context], run: RunLayer
    ) -> tuple[Tensor, Tensor | None]:
        """x [batch x streams, length, dim] -> the same, and ponder times [batch, length] or None.

        `contexts`: all that the layers read, the one of the stack's own tokens first.
        """
        context = contexts[0]
        if self.recompute and context.training and torch.is_grad_enabled():
            run = recomputed(run)
        state = None if self.halting is None else HaltingState(x, encodings.streams)
        for number in range(self.count):
            inputs = encodings.layer(x, number, context)
            layer = self.layers[number % len(self.layers)]
            if self.halting is None or state is None:
                x = run(layer, inputs, number, contexts)
            else:
                step = partial(run, layer, inputs, number, contexts)
                x = self.halting(x, inputs, step, state, number == self.count - 1)
        if state is not None:
            x = state.output
        return encodings.readout(self.norm(x), context), None if state is None else state.ponder


class HaltingState:
    """Halting probability, ponder time and output of each token [batch, length] so far."""

    def __init__(self, x: Tensor, streams: int = 1) -> None:
        """x [batch x streams, length, dim]; a token halts in all streams at once."""
        self.streams = streams
        tokens = (len(x) // streams, x.shape[1])
        self.probability = x.new_zeros(tokens, dtype=torch.float32)  # halting probability so far
        self.ponder = torch.zeros_like(self.probability)  # steps taken, plus the remainder
        self.running = torch.ones_like(self.probability, dtype=torch.bool)
        self.output: Any = 0.0  # weighted sum of states [batch x streams, length, dim]

    def per_row(self, per_token: Tensor) -> Tensor:
        """[batch, length] -> [batch x streams, length, 1], to be multiplied with states."""
        return per_token.repeat_interleave(self.streams, 0)[..., None]


class Halting(nn.Module):
    """Adaptive computation time per token (Graves 2016; Universal Transformer, Dehghani 2019).

    Before each step a unit reads the input of the step, positional encodings included (as in
    tensor2tensor); the token halts at the step where the sum of these probabilities exceeds
    the threshold, or at the last one. Its output is the mean of its states, weighted by the
    probabilities (the last one by what is left). Later steps copy its state: other
    tokens attend to it as it was when it halted, with the encodings of the present step. Where a
    token has two streams, the mean of the unit's two logits decides for both.
    """

    def __init__(self, dim: int, threshold: float) -> None:
        super().__init__()
        self.unit = nn.Linear(dim, 1)
        self.threshold = threshold

    def forward(
        self, x: Tensor, inputs: Tensor, step: Callable[[], Tensor], state: HaltingState, last: bool
    ) -> Tensor:
        """One step from states x [batch x streams, length, dim] to the next; updates the state.

        `inputs` of the step: x as the encodings changed it.
        """
        logits = self.unit(inputs).squeeze(-1).float()  # [batch x streams, length]
        p = logits.unflatten(0, (-1, state.streams)).mean(1).sigmoid()  # [batch, length]
        stops = state.running & (((state.probability + p) > self.threshold) | last)
        weight = torch.where(stops, 1 - state.probability, p) * state.running
        state.ponder = state.ponder + state.running + stops * (1 - state.probability)
        state.probability = state.probability + weight
        x = torch.where(state.per_row(state.running), step(), x)
        state.output = state.output + state.per_row(weight).to(x.dtype) * x
        state.running = state.running & ~stops
        return x
