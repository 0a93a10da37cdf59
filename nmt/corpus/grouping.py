"""Batches of sentences of like length, within a budget of tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group the indices 0, 1, ... by length, the longest first, so that there is little padding.

    Each respects the budget as in `batch_starts`. If memory is too small, the first one shows it.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    starts = batch_starts(np.asarray(lengths, np.int64)[order], budget)
    return [group.tolist() for group in np.split(order, starts[1:])] if len(order) else []


def batch_starts(lengths: NDArray[np.integer[Any]], budget: int) -> NDArray[np.int64]:
    """Return where each batch starts among items that are sorted by length, the longest first.

    Count x greatest length of a batch is at most the budget; an item longer than the whole budget
    is a batch by itself.
    """
    starts, start = [], 0
    while start < len(lengths):
        starts.append(start)
        start += max(1, budget // max(1, int(lengths[start])))
    return np.array(starts, np.int64)
