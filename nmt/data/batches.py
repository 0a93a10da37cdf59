"""Batches of pairs of like length; a function of seed and epoch alone, so that a run can resume."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.store import SIDES, PairStore
from nmt.data.vocab import BOS, PAD

COUNTS = ("source", "target", "max")


class Batch(NamedTuple):
    """Pairs of like length, padded on the right with PAD."""

    source: Tensor  # [batch, source] ids, each row ends in EOS
    target: Tensor  # [batch, target] ids, BOS ... EOS
    lines: list[int]  # [batch] where each pair stood in its file, from 1
    columns: dict[str, Tensor]  # [batch, source], padded with 0, or [batch, 1] per sentence


class BatchPlan(NamedTuple):
    """Which pairs stand together in one epoch."""

    pairs: NDArray[np.integer[Any]]  # [pair] numbers of pairs, longest first
    starts: NDArray[np.int64]  # [batch] where each batch begins in `pairs`, in training order
    sizes: NDArray[np.int64]  # [batch] pairs of each batch, in training order


class Batches:
    """Cuts a store into batches of at most `budget` tokens, anew in each epoch.

    Counted are the tokens of one side (or of each pair's longer one), EOS and padding included.
    Pairs are sorted by length, equal ones in random order, so a batch holds little padding;
    then the batches are shuffled. A pair longer than the budget makes a batch of its own.
    """

    def __init__(self, store: PairStore, budget: int, count: str, seed: int) -> None:
        self._store, self._seed = store, seed
        self._key, counted = _lengths(store, count)
        self._starts = _cuts(np.sort(counted)[::-1] + 1, budget)
        self._plan: tuple[int, BatchPlan] | None = None

    def __len__(self) -> int:
        return len(self._starts)

    def order(self, epoch: int) -> BatchPlan:
        """Give the plan of an epoch; the last one asked for is kept."""
        if self._plan is None or self._plan[0] != epoch:
            # Philox counts: it gives the same numbers on every machine
            draw = np.random.Generator(
                np.random.Philox(np.random.SeedSequence([self._seed, epoch]))
            )
            mixed = draw.permutation(len(self._key)).astype(np.uint32)
            pairs = mixed[_descending(self._key[mixed])]
            shuffled = draw.permutation(len(self._starts))
            sizes = np.diff(self._starts, append=len(pairs))
            self._plan = epoch, BatchPlan(pairs, self._starts[shuffled], sizes[shuffled])
        return self._plan[1]

    def batch(self, epoch: int, index: int) -> Batch:
        """Make batch number `index` of an epoch; IndexError beyond the last one."""
        plan = self.order(epoch)
        start = plan.starts[index]
        return _batch(self._store, plan.pairs[start : start + plan.sizes[index]])


def in_order(store: PairStore, budget: int, count: str) -> Iterator[Batch]:
    """Yield all pairs once, always in the same order: longest first, then as in the file."""
    key, counted = _lengths(store, count)
    pairs = _descending(key)
    starts = _cuts(counted[pairs] + 1, budget)
    for rows in np.split(pairs, starts[1:]):
        yield _batch(store, rows)


def _lengths(store: PairStore, count: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Give each pair's sort key, and its length on the counted side, both [pair]."""
    source, target = store.source_lengths, store.target_lengths
    if count not in COUNTS:
        raise ValueError(f"count={count}: choose one of {', '.join(COUNTS)}")
    counted, other = {
        "source": (source, target),
        "target": (target, source),
        "max": (np.maximum(source, target), target),
    }[count]
    return counted.astype(np.int64) << 32 | other, counted


def _descending(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort from the greatest, equal keys in the order they stand in."""
    return np.argsort(-keys, kind="stable")


def _cuts(widths: NDArray[np.integer[Any]], budget: int) -> NDArray[np.int64]:
    """Give where each batch starts; widths [pair] are padded lengths, falling.

    The first pair of a batch is its longest, so it alone decides how many fit.
    """
    starts, start = [], 0
    while start < len(widths):
        starts.append(start)
        start += max(1, budget // int(widths[start]))
    return np.array(starts, np.int64)


def _batch(store: PairStore, rows: NDArray[np.integer[Any]]) -> Batch:
    source, target = (_padded(store.ids[s], store.offsets[s], rows) for s in SIDES)
    columns = {
        name: values[rows][:, None].astype(np.int64)
        if store.per[name] == "sentence"
        else _padded(values, store.offsets["source"], rows)
        for name, values in store.columns.items()
    }
    begin = np.full((len(rows), 1), BOS, np.int64)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(np.concatenate([begin, target], axis=1)),
        store.lines[rows].tolist(),
        {name: torch.from_numpy(values) for name, values in columns.items()},
    )


def _padded(
    values: NDArray[Any], offsets: NDArray[Any], rows: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Gather the ids (or integers) of some pairs as [batch, longest], padded on the right."""
    starts = offsets[rows].astype(np.int64)  # [batch]
    lengths = offsets[rows.astype(np.int64) + 1].astype(np.int64) - starts  # [batch]
    columns = np.arange(lengths.max())  # [longest]
    inside = columns < lengths[:, None]  # [batch, longest]
    places = np.where(inside, starts[:, None] + columns, 0)
    return np.where(inside, values[places].astype(np.int64), PAD)
