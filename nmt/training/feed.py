"""The batches of an update: which they are, and how they get to this rank's device."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.config.settings import Training
from nmt.corpus.batches import Batch, Batches
from nmt.system import device as devices
from nmt.text.vocab import EOS, PAD
from nmt.training.distributed import World
from nmt.training.schedule import DataCursor, is_over

AHEAD = 4  # updates whose text workers segment in advance


class DeviceBatch(NamedTuple):
    """A batch on the device: what the model reads, and what it is to predict."""

    source: Tensor  # [batch, source] ids
    prefix: Tensor  # [batch, target] ids, BOS ..., without EOS
    columns: dict[str, Tensor]  # [batch, source | 1] each
    labels: Tensor  # [tokens] ids to predict: target pieces and one EOS per row, no padding
    indices: Tensor  # [tokens] of the labels among [batch x target]
    counted: bool = True  # false: of another rank, for a sum in which all take part
    position: Sequence[int] = ()  # number of the batch in its update, and of the part of that

    @property
    def tokens(self) -> int:
        """How many tokens it predicts, if it is counted."""
        return len(self.labels) * self.counted


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Move a batch to a device, without waiting for it.

    Padding is left out before the projection onto the vocabulary, which is most of the work. Which
    tokens are padding is decided on the CPU: a GPU would make the host wait for its answer.
    """
    moved = partial(devices.to_device, device=device)
    labels, prefix = batch.target[:, 1:].flatten(), batch.target[:, :-1]
    indices = labels.ne(PAD).nonzero().squeeze(1)
    return DeviceBatch(
        source=moved(batch.source),
        prefix=moved(prefix.masked_fill(prefix == EOS, PAD)),  # EOS is predicted and never read
        columns={name: moved(values) for name, values in batch.columns.items()},
        labels=moved(labels[indices]),
        indices=moved(indices),
    )


def halve(batch: Batch) -> list[Batch]:
    """Return a batch in two parts of half as many pairs; a batch of one pair as it is."""
    middle = len(batch.source) // 2
    return [
        batch._replace(
            source=batch.source[part],
            target=batch.target[part],
            lines=batch.lines[part],
            columns={name: values[part] for name, values in batch.columns.items()},
        )
        for part in ([slice(middle), slice(middle, None)] if middle else [slice(None)])
    ]


class Feed:
    """The batches of a training, update by update, and which updates a checkpoint follows.

    The last update of an epoch may have fewer batches than the rest.
    """

    def __init__(
        self, batches: Batches, options: Training, world: World, device: torch.device
    ) -> None:
        self.batches, self.options, self.world, self.device = batches, options, world, device

    def updates(self, epoch: int) -> int:
        return math.ceil(self.batches.size(epoch) / self.options.accumulate)

    def batch_numbers(self, cursor: DataCursor) -> range:
        """Return the numbers, within their epoch, of the batches of the update at `cursor`."""
        end = min(cursor.batch + self.options.accumulate, self.batches.size(cursor.epoch))
        return range(cursor.batch, end)

    def after(self, cursor: DataCursor) -> DataCursor:
        """Return where the next update begins, if this one begins at `cursor`."""
        end = self.batch_numbers(cursor).stop
        is_last = end == self.batches.size(cursor.epoch)
        return DataCursor(cursor.epoch + 1) if is_last else DataCursor(cursor.epoch, end)

    def is_due(self, cursor: DataCursor, step: int) -> bool:
        """Whether a checkpoint follows update `step`: evenly spaced, always at an epoch's end."""
        if every := self.options.checkpoint_every:
            return step % every == 0
        done, updates = cursor.batch // self.options.accumulate, self.updates(cursor.epoch)
        number = min(self.options.checkpoints_per_epoch, updates)
        return (done + 1) * number // updates > done * number // updates

    def host_batches(self, cursor: DataCursor) -> list[Batch]:
        """Make the batches of an update, of all ranks."""
        return [
            part
            for number in self.batch_numbers(cursor)
            for part in self.batches.batch(cursor.epoch, number)
        ]

    def device_batches(self, cursor: DataCursor, step: int) -> list[DeviceBatch]:
        """Make this rank's batches of an update, on the device; `step`: updates made so far.

        The last update of an epoch may have fewer batches than there are ranks. A rank without one
        computes the first, uncounted, since every rank must take part in the sum of gradients.
        """
        all_numbers = self.batch_numbers(cursor)
        numbers = list(self.world.shard(all_numbers))
        batches = [
            to_device(part, self.device)._replace(
                counted=bool(numbers), position=(number - cursor.batch, n)
            )
            for number in numbers or all_numbers[:1]
            for n, part in enumerate(self.batches.batch(cursor.epoch, number))
        ]
        for later in range(step + 1, step + 1 + AHEAD):  # have workers segment the text of these
            cursor = self.after(cursor)
            if not self.batches.workers.count or is_over(later, cursor, self.options):
                break
            self.batches.begin(cursor.epoch, self.world.shard(self.batch_numbers(cursor)))
        return batches
