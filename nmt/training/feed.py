"""The batches of an update: which they are, and how they get to this rank's device."""

import torch

from nmt.config.settings import Training
from nmt.corpus.batches import Batch, Batches
from nmt.training import loss
from nmt.training.distributed import World
from nmt.training.loss import DeviceBatch
from nmt.training.timetable import DataPlace, Timetable, is_over

AHEAD = 4  # updates whose text workers segment meanwhile


class Feed:
    """What a training reads, update by update."""

    def __init__(
        self, batches: Batches, options: Training, world: World, device: torch.device
    ) -> None:
        self.batches, self.options, self.world, self.device = batches, options, world, device

    def timetable(self, epoch: int) -> Timetable:
        """Return the updates of an epoch."""
        size = self.batches.size(epoch)
        return Timetable(size, self.options.accumulate, self.options.checkpoints_per_epoch)

    def host_batches(self, place: DataPlace) -> list[Batch]:
        """Make the batches of an update, of all ranks."""
        share = self.timetable(place.epoch).share(place)
        return [part for number in share for part in self.batches.batch(place.epoch, number)]

    def device_batches(self, place: DataPlace, step: int) -> list[DeviceBatch]:
        """Make this rank's batches of an update, on the device; `step`: updates made so far.

        The last update of an epoch may have fewer batches than there are ranks. A rank that has
        none goes through the first without counting it, as all take part in the sum of gradients.
        """
        share = self.timetable(place.epoch).share(place)
        numbers = list(self.world.shard(share))
        made = [
            loss.to_device(part, self.device)._replace(
                counted=bool(numbers), position=(number - place.batch, n)
            )
            for number in numbers or share[:1]
            for n, part in enumerate(self.batches.batch(place.epoch, number))
        ]
        if self.batches.workers.count:
            self._begin_next(place, step)
        return made

    def _begin_next(self, place: DataPlace, step: int) -> None:
        """Have workers segment the text of the updates that follow."""
        for made in range(1, AHEAD + 1):
            place = self.timetable(place.epoch).after(place)
            if is_over(step + made, place, self.options):
                return
            share = self.timetable(place.epoch).share(place)
            self.batches.begin(place.epoch, self.world.shard(share))
