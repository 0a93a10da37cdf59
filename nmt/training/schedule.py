"""Learning rates, and when training ends."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from nmt.config.settings import Optim, Training


@dataclass
class Stalls:
    """Counts the checkpoints in a row that are not better than the best so far."""

    best: list[float] | None = None
    stalled: int = 0

    def observe(self, cost: list[float]) -> None:
        """Take a checkpoint into account; the lower its cost, the better it is: `Saved.cost`."""
        if self.best is None or cost < self.best:
            self.best, self.stalled = cost, 0
        else:
            self.stalled += 1


@dataclass(kw_only=True)
class PlateauDecay(Stalls):
    """Rosendahl et al. 2019: cut the rate when the cost of some checkpoints has stalled.

    With patience 6, the sixth checkpoint in a row that is not strictly better than the best so
    far cuts the rate, and the count starts anew; the best does not. torch's ReduceLROnPlateau
    would cut at the seventh, ignore gains below 0.01 %, and count NaN as one more bad value.
    """

    lr: float
    decay: float
    patience: int
    min_lr: float

    def rate(self, step: int) -> float:
        return self.lr

    def observe(self, cost: list[float]) -> None:
        super().observe(cost)
        if self.stalled == self.patience:
            self.lr = max(self.lr * self.decay, self.min_lr)
            self.stalled = 0


@dataclass
class InverseSqrtDecay:
    """Vaswani et al. 2017, section 5.3: peak * min(step / warmup, sqrt(warmup / step))."""

    peak: float
    warmup: int

    def rate(self, step: int) -> float:
        """Return the rate of a step; the first step is 1."""
        return self.peak * min(step / self.warmup, math.sqrt(self.warmup / step))

    def observe(self, cost: list[float]) -> None:
        """The cost of a checkpoint changes nothing."""


def make_schedule(optim: Optim) -> PlateauDecay | InverseSqrtDecay:
    if optim.kind == "inverse_sqrt":
        return InverseSqrtDecay(optim.lr, optim.warmup)
    return PlateauDecay(
        lr=optim.lr, decay=optim.decay, patience=optim.patience, min_lr=optim.min_lr
    )


class DataCursor(NamedTuple):
    """Where the next update begins; both count from 0."""

    epoch: int = 0
    batch: int = 0


def is_over(step: int, cursor: DataCursor, trainer: Training) -> bool:
    """Whether training ends after `step` updates, if the next one would be at `cursor`."""
    steps, epochs = trainer.max_steps, trainer.max_epochs
    return (steps is not None and step >= steps) or (epochs is not None and cursor.epoch >= epochs)


def is_finished(step: int, cursor: DataCursor, stalled: int, trainer: Training) -> bool:
    """Whether training is over, or ends early, after `stalled` checkpoints without a new best."""
    return is_over(step, cursor, trainer) or 0 < trainer.early_stopping <= stalled


def last_step(updates: int, trainer: Training) -> int:
    """Return the final step, where all epochs have so many updates."""
    by_epochs = math.inf if trainer.max_epochs is None else trainer.max_epochs * updates
    return int(min(trainer.max_steps or by_epochs, by_epochs))
