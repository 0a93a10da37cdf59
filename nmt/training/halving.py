"""An update for which memory is too small, once more with batches of half the size."""

from collections.abc import Callable

from torch import Tensor

from nmt.errors import is_out_of_memory
from nmt.training.loss import DeviceBatch


def with_halves(
    sum_gradients: Callable[[list[DeviceBatch]], Tensor],
    batches: list[DeviceBatch],
    begin_again: Callable[[], None],
) -> Tensor:
    """`sum_gradients(batches)`; where memory is too small, of their halves, after `begin_again()`.

    That is called when no error holds the tensors of the first try any more. Raises what the second
    try raises, and the first where no batch can be halved.
    """
    try:
        return sum_gradients(batches)
    except (RuntimeError, MemoryError) as error:
        smaller = [half for batch in batches for half in halves(batch)]
        if len(smaller) == len(batches) or not is_out_of_memory(error):
            raise
    begin_again()
    return sum_gradients(smaller)


def halves(batch: DeviceBatch) -> list[DeviceBatch]:
    """The batch in two of half as many pairs; in one, where it has a single pair."""
    rows, length = batch.prefix.shape
    if rows == 1:
        return [batch]
    parts = []
    for part in (slice(0, rows // 2), slice(rows // 2, rows)):
        first, end = part.start * length, part.stop * length
        inside = (batch.indices >= first) & (batch.indices < end)
        parts.append(
            batch._replace(
                source=batch.source[part],
                prefix=batch.prefix[part],
                columns={name: values[part] for name, values in batch.columns.items()},
                labels=batch.labels[inside],
                indices=batch.indices[inside] - first,
                lines=batch.lines[part],
            )
        )
    return parts
