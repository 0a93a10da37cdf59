"""The batches of each step, and the steps that a checkpoint follows: arithmetic of integers.

As a function of the step alone, the place in the data needs no state, and resuming no seeking.
"""

import math
from typing import NamedTuple

from nmt.config.settings import Training


class Timetable(NamedTuple):
    """The plan of a run; steps count from 1, epochs from 1, batches of an epoch from 0."""

    batches: int  # of an epoch
    accumulate: int  # batches of a step
    checkpoints: int  # of an epoch
    last: int  # the final step

    @property
    def updates(self) -> int:
        """Steps of an epoch; the last may have fewer batches, none has those of two epochs."""
        return math.ceil(self.batches / self.accumulate)

    def epoch(self, step: int) -> int:
        """Return the epoch that a step belongs to."""
        return (step - 1) // self.updates + 1

    def share(self, step: int) -> range:
        """Return the numbers of a step's batches within its epoch."""
        first = (step - 1) % self.updates * self.accumulate
        return range(first, min(first + self.accumulate, self.batches))

    def due(self, step: int) -> bool:
        """Say whether a checkpoint follows a step: evenly spaced, always at an epoch's end."""
        position = (step - 1) % self.updates + 1
        number = min(self.checkpoints, self.updates)
        return position * number // self.updates > (position - 1) * number // self.updates


def timetable(batches: int, trainer: Training) -> Timetable:
    """Plan a run on `batches` batches an epoch; whichever limit comes first ends it."""
    epochs, updates = trainer.max_epochs, math.ceil(batches / trainer.accumulate)
    limits = (trainer.max_steps, None if epochs is None else epochs * updates)
    last = min(limit for limit in limits if limit is not None)
    return Timetable(batches, trainer.accumulate, trainer.checkpoints_per_epoch, last)
