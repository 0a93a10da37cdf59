"""Learning-rate schedules: by stalls of the dev perplexity, or by the step alone."""

import math

from nmt.config.settings import Optim
from nmt.training.stateful import Stateful


class PlateauDecay(Stateful):
    """Rosendahl et al. 2019: cut the rate when the dev perplexity has stalled for some checkpoints.

    Or, as that is the cost of a checkpoint by default, another one: see `Saved.cost`.

    With patience 6, the sixth checkpoint in a row that is not strictly better than the best so
    far cuts the rate, and the count starts anew; the best does not. torch's ReduceLROnPlateau
    would cut at the seventh, ignore gains below 0.01 %, and count NaN as one more bad value.
    """

    kept = ("lr", "best", "stalled")

    def __init__(self, lr: float, decay: float, patience: int, min_lr: float) -> None:
        self.lr, self.decay, self.patience, self.min_lr = lr, decay, patience, min_lr
        self.best: float | None = None
        self.stalled = 0

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, which it does not depend on."""
        return self.lr

    def observe(self, cost: float) -> None:
        """Take the cost of a checkpoint into account: count a stall, or start anew."""
        if self.best is None or cost < self.best:
            self.best, self.stalled = cost, 0
            return
        self.stalled += 1
        if self.stalled == self.patience:
            self.lr = max(self.lr * self.decay, self.min_lr)
            self.stalled = 0


class InverseSqrtDecay(Stateful):
    """Vaswani et al. 2017, section 5.3: peak * min(step / warmup, sqrt(warmup / step))."""

    def __init__(self, peak: float, warmup: int) -> None:
        self.peak, self.warmup = peak, warmup

    def rate(self, step: int) -> float:
        """Return the rate of a step; the first step is 1."""
        return self.peak * min(step / self.warmup, math.sqrt(self.warmup / step))

    def observe(self, cost: float) -> None:
        """The cost of a checkpoint changes nothing."""


def schedule(optim: Optim) -> PlateauDecay | InverseSqrtDecay:
    """Make the schedule that the config names."""
    if optim.kind == "plateau":
        return PlateauDecay(optim.lr, optim.decay, optim.patience, optim.min_lr)
    return InverseSqrtDecay(optim.lr, optim.warmup)
