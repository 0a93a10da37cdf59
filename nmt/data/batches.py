"""Batches of pairs of like length; a function of seed and epoch alone, so that a run can resume."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.data.joining import Examples, Joining, alone, joined
from nmt.data.store import SIDES, Pairs
from nmt.data.subword_sampling import SampledText
from nmt.data.vocab import BOS, EOS, PAD

SPARE = 0.03  # of the first epoch's batches: so many more may another one need
COUNTS = ("source", "target", "max")


class Batch(NamedTuple):
    """Pairs of like length, padded on the right with PAD."""

    source: Tensor  # [batch, source] ids, each row ends in EOS
    target: Tensor  # [batch, target] ids, BOS ... EOS
    lines: list[int]  # [batch] where each pair (of joined ones the first) stood in its file, from 1
    columns: dict[str, Tensor]  # [batch, source], padded with 0, or [batch, 1] per sentence


class BatchPlan(NamedTuple):
    """Which examples stand together in one epoch."""

    text: Pairs  # that they are made of
    examples: Examples
    order: NDArray[np.integer[Any]]  # [example] numbers of examples, longest first
    starts: NDArray[np.int64]  # [batch] where each batch begins in `order`, in training order
    sizes: NDArray[np.int64]  # [batch] examples of each batch, in training order


class Batches:
    """Cuts a store into batches of at most `budget` tokens, anew in each epoch.

    Counted are the tokens of one side (or of each pair's longer one), EOS and padding included.
    Pairs are sorted by length, equal ones in random order, so a batch holds little padding;
    then the batches are shuffled. A pair longer than the budget makes a batch of its own.

    With `joining`, examples are drawn anew in each epoch; with `sampled`, text that is segmented
    anew takes the place of the store. All epochs have as many batches, so that the place in the
    data is a function of the step alone: some few percent more than the first epoch needs, made by
    halving large ones. An epoch whose examples cannot be cut into as many has those of the first.
    """

    def __init__(
        self,
        store: Pairs,
        budget: int,
        count: str,
        seed: int,
        joining: Joining | None = None,
        sampled: SampledText | None = None,
    ) -> None:
        self._store, self._seed, self._budget, self._count = store, seed, budget, count
        self._joining, self._sampled = joining, sampled
        self._plan: tuple[int, BatchPlan] | None = None
        examples = self.examples(0)
        needed = len(self._cut(examples))
        differ = joining is not None or sampled is not None
        spare = 1 + int(SPARE * needed) if differ else 0
        self._batches = min(needed + spare, len(examples.first)) if spare else needed

    def __len__(self) -> int:
        return self._batches

    def examples(self, epoch: int) -> Examples:
        """Give the examples of an epoch, in the order of the text."""
        text = self._text(epoch)
        if self._joining is None:
            return alone(text)
        return joined(text, self._joining, self._seed, epoch)

    def _text(self, epoch: int) -> Pairs:
        return self._store if self._sampled is None else self._sampled.epoch(epoch)

    def _cut(self, examples: Examples) -> NDArray[np.int64]:
        """Where batches start, among the examples from the longest on."""
        counted = _lengths(examples, self._count)[1]
        return _cuts(np.sort(counted)[::-1] + 1, self._budget)

    def _planned(self, epoch: int) -> tuple[Pairs, Examples, NDArray[np.int64]]:
        """The text and examples of an epoch, and where its batches start among them."""
        examples = self.examples(epoch)
        starts = self._cut(examples)
        if not len(starts) <= self._batches <= len(examples.first):
            epoch = 0
            examples = self.examples(epoch)
            starts = self._cut(examples)
        return self._text(epoch), examples, _halved(starts, len(examples.first), self._batches)

    def order(self, epoch: int) -> BatchPlan:
        """Give the plan of an epoch; the last one asked for is kept."""
        if self._plan is None or self._plan[0] != epoch:
            # Philox counts: it gives the same numbers on every machine
            draw = np.random.Generator(
                np.random.Philox(np.random.SeedSequence([self._seed, epoch]))
            )
            text, examples, starts = self._planned(epoch)
            key, _ = _lengths(examples, self._count)
            mixed = draw.permutation(len(key)).astype(np.uint32)
            order = mixed[_descending(key[mixed])]
            shuffled = draw.permutation(len(starts))
            sizes = np.diff(starts, append=len(order))
            self._plan = epoch, BatchPlan(text, examples, order, starts[shuffled], sizes[shuffled])
        return self._plan[1]

    def batch(self, epoch: int, index: int) -> Batch:
        """Make batch number `index` of an epoch; IndexError beyond the last one."""
        plan = self.order(epoch)
        start = plan.starts[index]
        return _batch(plan.text, plan.examples, plan.order[start : start + plan.sizes[index]])


def in_order(store: Pairs, budget: int, count: str) -> Iterator[Batch]:
    """Yield all pairs once, always in the same order: longest first, then as in the file."""
    examples = alone(store)
    key, counted = _lengths(examples, count)
    pairs = _descending(key)
    starts = _cuts(counted[pairs] + 1, budget)
    for rows in np.split(pairs, starts[1:]):
        yield _batch(store, examples, rows)


def _lengths(examples: Examples, count: str) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Give each example's sort key, and its length on the counted side, both [example]."""
    source, target = examples.source, examples.target
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


def _halved(starts: NDArray[np.int64], total: int, wanted: int) -> NDArray[np.int64]:
    """Halve the batches of most examples, until there are as many as wanted."""
    if len(starts) == wanted:
        return starts
    sizes = np.diff(starts, append=total).tolist()
    heap = [(-size, start) for size, start in zip(sizes, starts.tolist(), strict=True)]
    heapify(heap)
    while len(heap) < wanted:
        size, start = heappop(heap)
        half = -size // 2
        heappush(heap, (-half, start))
        heappush(heap, (size + half, start + half))
    return np.array(sorted(start for _, start in heap), np.int64)


def _batch(store: Pairs, examples: Examples, rows: NDArray[np.integer[Any]]) -> Batch:
    """Put examples together; where pairs may be joined, without the columns beside them."""
    if (counts := examples.counts[rows]).max(initial=1) > 1:
        return _joined_batch(store, examples.first[rows].tolist(), counts.tolist())
    rows = examples.first[rows]
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


def _joined_batch(store: Pairs, first: list[int], counts: list[int]) -> Batch:
    """Examples of several pairs: their ids one after the other, and one EOS at the end."""
    sides = []
    for side in SIDES:
        ids, ends = store.ids[side], store.offsets[side].astype(np.int64)
        begin = [BOS] if side == "target" else []
        rows = []
        for place, count in zip(first, counts, strict=True):
            parts = [ids[ends[i] : ends[i + 1] - 1] for i in range(place, place + count)]
            rows.append(torch.tensor([*begin, *np.concatenate(parts).tolist(), EOS]))
        sides.append(pad_sequence(rows, batch_first=True, padding_value=PAD))
    return Batch(sides[0], sides[1], store.lines[first].tolist(), {})


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
