"""Learning-rate schedules: by stalls of the dev perplexity, or by the step alone."""

import math
from typing import Any, Protocol

from nmt import config


class Schedule(Protocol):
    """What the loop asks of a schedule."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step; the first step is 1."""

    def observe(self, perplexity: float) -> None:
        """Take notice of the dev perplexity at a checkpoint."""

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON can hold it."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""


class PlateauDecay:
    """Rosendahl et al. 2019: cut the rate when the dev perplexity has stalled for some checkpoints.

    With patience 6, the sixth checkpoint in a row that is not strictly better than the best so
    far cuts the rate, and the count starts anew; the best does not. torch's ReduceLROnPlateau
    would cut at the seventh, ignore gains below 0.01 %, and count NaN as one more bad value.
    """

    def __init__(self, lr: float, decay: float, patience: int, min_lr: float) -> None:
        self.lr, self.decay, self.patience, self.min_lr = lr, decay, patience, min_lr
        self.best = math.inf
        self.stalled = 0

    def rate(self, step: int) -> float:
        """Return the current rate, whatever the step."""
        return self.lr

    def observe(self, perplexity: float) -> None:
        """Count a stall, or start anew; the perplexity is finite (the loop stops otherwise)."""
        if perplexity < self.best:
            self.best, self.stalled = perplexity, 0
            return
        self.stalled += 1
        if self.stalled == self.patience:
            self.lr = max(self.lr * self.decay, self.min_lr)
            self.stalled = 0

    def state(self) -> dict[str, Any]:
        """Return rate, best (None before the first checkpoint) and stalls."""
        best = self.best if math.isfinite(self.best) else None
        return {"lr": self.lr, "best": best, "stalled": self.stalled}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.lr, self.stalled = state["lr"], state["stalled"]
        self.best = math.inf if state["best"] is None else state["best"]


class InverseSqrtDecay:
    """Vaswani et al. 2017, section 5.3: peak * min(step / warmup, sqrt(warmup / step))."""

    def __init__(self, peak: float, warmup: int) -> None:
        self.peak, self.warmup = peak, warmup

    def rate(self, step: int) -> float:
        """Return the rate of a step; the first step is 1."""
        return self.peak * min(step / self.warmup, math.sqrt(self.warmup / step))

    def observe(self, perplexity: float) -> None:
        """Do nothing: the step alone decides."""

    def state(self) -> dict[str, Any]:
        """Return nothing: the step alone decides."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing: the step alone decides."""


def schedule(optim: config.Optim) -> Schedule:
    """Make the schedule that the config names."""
    if isinstance(optim, config.Plateau):
        return PlateauDecay(optim.lr, optim.decay, optim.patience, optim.min_lr)
    if isinstance(optim, config.InverseSqrt):
        return InverseSqrtDecay(optim.lr, optim.warmup)
    raise TypeError(type(optim))  # unreachable: config.KINDS lists the two
