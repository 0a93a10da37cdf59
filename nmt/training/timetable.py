"""The place of a training in its data, and the updates that a checkpoint follows."""

import math
from typing import NamedTuple

from nmt.config.settings import Training


class DataPlace(NamedTuple):
    """Where the next update begins; both count from 0."""

    epoch: int = 0
    batch: int = 0


class Timetable(NamedTuple):
    """The updates of an epoch; a batch that is made in several parts counts once."""

    batches: int
    accumulate: int  # batches of an update
    checkpoints: int

    @property
    def updates(self) -> int:
        """Updates of the epoch; the last may have fewer batches, none has those of two epochs."""
        return math.ceil(self.batches / self.accumulate)

    def share(self, place: DataPlace) -> range:
        """Return the numbers of an update's batches."""
        return range(place.batch, min(place.batch + self.accumulate, self.batches))

    def after(self, place: DataPlace) -> DataPlace:
        """Return the place of the next update."""
        end = self.share(place).stop
        return DataPlace(place.epoch + 1) if end == self.batches else DataPlace(place.epoch, end)

    def is_due(self, place: DataPlace) -> bool:
        """Whether a checkpoint follows an update: evenly spaced, always at an epoch's end."""
        before, number = place.batch // self.accumulate, min(self.checkpoints, self.updates)
        return (before + 1) * number // self.updates > before * number // self.updates


def is_over(step: int, place: DataPlace, trainer: Training) -> bool:
    """Whether a training of so many updates, the next of which is at a place, is at its end."""
    steps, epochs = trainer.max_steps, trainer.max_epochs
    return (steps is not None and step >= steps) or (epochs is not None and place.epoch >= epochs)


def last_step(updates: int, trainer: Training) -> int:
    """Return the final step, where all epochs have so many updates."""
    epochs = trainer.max_epochs
    limits = (trainer.max_steps, None if epochs is None else epochs * updates)
    return min(limit for limit in limits if limit is not None)
