"""What an update makes smaller, as one module: so torch can exchange its gradients."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.model.transformer import Transformer
from nmt.training import loss
from nmt.training.loss import Ready


class Evaluated(NamedTuple):
    """What a batch contributes to an update."""

    loss: Tensor  # [] per token of the update, whose gradient is asked for
    sums: Tensor  # [2] smoothed loss and negative log-likelihood over the batch, without gradient


class Objective(nn.Module):
    """The label-smoothed loss of a model; it has no parameters of its own.

    compiled: torch compiles the pass through the model at its first batch, for all lengths and
    numbers of sentences; what is dropped out then comes of other random numbers.
    """

    def __init__(
        self, model: Transformer, smoothing: float, device: torch.device, compiled: bool = False
    ) -> None:
        super().__init__()
        self.model, self.smoothing, self.device = model, smoothing, device
        self.hidden = torch.compile(model.hidden, dynamic=True) if compiled else model.hidden

    def forward(self, batch: Ready, tokens: int) -> Evaluated:
        """Evaluate a batch; `tokens`: how many the update predicts, on all ranks."""
        states, expected, side_loss = loss.predict(self.hidden, batch, self.device)
        smoothed, likelihoods = loss.smoothed(states, self.model.output, expected, self.smoothing)
        summed = smoothed
        if side_loss is not None:  # per token, so that it weighs as its batch does
            summed = smoothed + side_loss * len(expected)
        sums = torch.stack((smoothed.detach(), likelihoods.sum()))
        if not batch.counts:
            summed, sums = summed * 0, sums * 0
        return Evaluated(summed / tokens, sums)
