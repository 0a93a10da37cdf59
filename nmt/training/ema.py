"""An exponential moving average of the weights, in addition to the weights that are trained.

It is what Marian calls exponential smoothing and TensorFlow ExponentialMovingAverage; after update
t the decay is at most (1 + t) / (10 + t), as there, so that the random start is soon forgotten.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import safetensors.torch
import torch
from torch import nn

from nmt import modeldir
from nmt.storage.manifest import VerifiedDirectory

RAW = "raw.safetensors"  # in a checkpoint: the weights that training goes on from


class MovingAverage:
    """Averages the weights of a model in training; with decay 0 it does nothing.

    All ranks have the same weights, and so the same average.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.raw = dict(trained) if decay else {}  # the parameters themselves
        self.restart()

    def restart(self) -> None:
        """Start again from the present weights."""
        self.means = {name: p.detach().clone() for name, p in self.raw.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after an update; steps count from 1."""
        if self.raw:
            decay = min(self.decay, (1 + step) / (10 + step))
            torch._foreach_lerp_([*self.means.values()], [*self.raw.values()], 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average into the model for this context."""
        before = {name: p.detach().clone() for name, p in self.raw.items()}
        self._set(self.means)
        try:
            yield
        finally:
            self._set(before)

    @torch.no_grad()
    def _set(self, values: dict[str, torch.Tensor]) -> None:
        for name, value in values.items():
            self.raw[name].copy_(value)

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the trained weights; those of the model directory are the average."""
        if self.raw:
            tensors = {n: p.detach().cpu().contiguous() for n, p in self.raw.items()}
            yield RAW, safetensors.torch.save(tensors)

    def restore(self, checkpoint: VerifiedDirectory) -> None:
        """Restore the trained weights, and the average from those that the model has."""
        if self.raw:
            self.restart()
            self._set(modeldir.read_tensors(checkpoint, RAW))
