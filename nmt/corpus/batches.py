"""Batches of pairs of like length; a function of seed and epoch alone, so that a run can resume."""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.config.settings import Settings
from nmt.corpus.examples import (
    Examples,
    Joining,
    alone,
    consecutive,
    joined,
    joining_of,
    longest,
    weighted,
)
from nmt.corpus.grouping import batch_starts
from nmt.corpus.pairs import SIDES, Pairs, spans
from nmt.corpus.subword_sampling import BLOCK, SampledBlock, SampledText, sampled_text
from nmt.text.vocab import BOS, PAD

if TYPE_CHECKING:
    from nmt.corpus.prepare import Prepared

log = logging.getLogger(__name__)
SPARE = 0.03  # share of extra batches, as another epoch or block may need more than the first
LEAST = 2**12  # lines of a block, if several are in use at once


class Batch(NamedTuple):
    """Pairs of like length, padded on the right with PAD."""

    source: Tensor  # [batch, source] ids, each row ends in EOS
    target: Tensor  # [batch, target] ids, BOS ... EOS
    lines: list[int]  # [batch] line number of each (first) pair in its file, from 1
    columns: dict[str, Tensor]  # [batch, source], padded with 0, or [batch, 1] per sentence
    pairs: Sequence[int] = ()  # how many it has of each corpus, if there are several


class _Epoch(NamedTuple):
    """The examples of an epoch in random order, block by block."""

    examples: Examples
    blocks: list[NDArray[np.uint32]]  # numbers of examples
    shuffles: list[NDArray[np.int64]]  # the order of the batches of each


class _Block(NamedTuple):
    """The batches of an epoch, or of a block of it."""

    examples: Examples
    order: NDArray[np.integer[Any]]  # [example] numbers of examples, longest first
    starts: NDArray[np.int64]  # [batch] where each batch begins in `order`, in training order
    sizes: NDArray[np.int64]  # [batch] examples of each batch, in training order

    def batch(self, number: int) -> Batch:
        """Make one of its batches."""
        start = self.starts[number]
        return _batch(self.examples, self.order[start : start + self.sizes[number]])


class Batches:
    """Cuts a store into batches of at most `budget` tokens, differently in each epoch.

    The budget counts the tokens of one side (or of each pair's longer one), with EOS and padding.
    Pairs are sorted by length, equal ones in random order, so that a batch has little padding;
    then the batches are shuffled. A pair longer than the budget is a batch of its own.

    With `joining`, other examples are drawn in each epoch. All epochs have the same number of
    batches, so that the position in the data is a function of the step alone: a few percent more
    than the first epoch needs, made by halving large ones. An epoch whose examples do not fit in
    that many batches has the examples of the first.

    With `weights`, an epoch has the pairs of each corpus as often as its weight says.

    With `sampled`, text is segmented at random in each epoch, in blocks of BLOCK random lines: all
    have the same number of batches, sorted and shuffled within the block, and each is segmented
    while training uses the one before. The `accumulate` batches of an update come from as many
    blocks (or a divisor of that), so that ranks which share them have no block in common. All of
    that is a function of text, settings and seed, whatever the number of ranks.
    """

    def __init__(
        self,
        store: Pairs,
        budget: int,
        count: str,
        seed: int,
        joining: Joining | None = None,
        sampled: SampledText | None = None,
        accumulate: int = 1,
        weights: Sequence[float] = (),
    ) -> None:
        self._store, self._seed, self._budget, self._count = store, seed, budget, count
        self._joining, self._sampled, self._weights = joining, sampled, weights
        self._concurrent, self._blocks = 1, 1  # blocks in use at once; all blocks of an epoch
        if sampled is not None:
            pairs = int(self.examples(0).counts.sum())
            limit = max(1, min(accumulate, pairs // LEAST))
            self._concurrent = next(n for n in range(limit, 0, -1) if accumulate % n == 0)
            self._blocks *= max(1, round(pairs / max(BLOCK, LEAST * self._concurrent)))
            self._blocks *= self._concurrent
        self._epochs: dict[int, _Epoch] = {}
        self._in_use: dict[tuple[int, int], _Block] = {}
        self._ahead: dict[tuple[int, int], Callable[[], _Block]] = {}  # wait for blocks begun
        self._size = 0  # batches of a block
        first = self._shuffled_epoch(0, 0)
        expected = first.examples if sampled is None else sampled.expected(first.examples)
        self.pairs = int(first.examples.counts.sum())  # of the first epoch
        needed = max(len(self._cut(expected, block)) for block in first.blocks)
        drawn = any(weight != int(weight) for weight in weights)
        differ = drawn or joining is not None or sampled is not None
        extra = 1 + int(SPARE * needed) if differ else 0
        self._size = min(needed + extra, *map(len, first.blocks)) if extra else needed

    def __len__(self) -> int:
        return self._size * self._blocks

    @cached_property
    def longest(self) -> dict[str, int]:
        """Pieces of the longest example that any epoch may have, by side; empty without joining."""
        return {} if self._joining is None else longest(self._store, self._joining)

    def report(self) -> None:
        """Log the shares of corpora, how many lines are joined, and what sampling changes."""
        if (corpora := self._store.corpora) is not None:
            pairs = self._store.pairs_of(*self.examples(0)[1:3])
            shares = (
                f"{n:,} pairs of {name} ({100 * n / self.pairs:.1f} %)"
                for name, n in zip(corpora.names, pairs, strict=True)
            )
            log.info("an epoch has %s", ", ".join(shares))
        if self._joining is not None:
            counts = self.examples(0).counts
            log.info(
                "joined: %.1f %% of %s training lines, in %s of %s examples of an epoch; longest "
                "source %d pieces",
                100 * counts[counts > 1].sum() / counts.sum(),
                *(f"{n:,}" for n in (counts.sum(), (counts > 1).sum(), len(counts))),
                self.longest["source"],
            )
        if self._sampled is not None:
            self._sampled.report()

    def workers(self) -> AbstractContextManager[object]:
        """Return the context in which workers, if there are any, segment text ahead."""
        return nullcontext() if self._sampled is None else self._sampled.pool

    def examples(self, epoch: int) -> Examples:
        """Return the examples of an epoch, in the order and segmentation of the prepared text."""
        if self._joining is None:
            examples = alone(self._store)
        else:
            examples = joined(self._store, self._joining, self._seed, epoch)
        if all(weight == 1 for weight in self._weights):
            return examples
        return weighted(examples, self._weights, self._seed, epoch)

    def batch(self, epoch: int, index: int) -> Batch:
        """Make batch number `index` of an epoch; IndexError beyond the last one."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        position, column = divmod(index, self._concurrent)
        row, number = divmod(position, self._size)
        return self._block(epoch, row * self._concurrent + column).batch(number)

    def _block(self, epoch: int, block: int = 0) -> _Block:
        """Return the batches of a block; those in use are kept, and the ones after them started."""
        if (epoch, block) not in self._in_use:
            row = block // self._concurrent
            current = {(epoch, row * self._concurrent + n) for n in range(self._concurrent)}
            self._in_use = {at: kept for at, kept in self._in_use.items() if at in current}
            planned = self._ahead.pop((epoch, block), None) or self._begin(epoch, block)
            self._in_use[epoch, block] = planned()
            if self._sampled is not None and self._sampled.pool.count:  # else it would wait
                epochs, number = divmod(block + self._concurrent, self._blocks)
                following = epoch + epochs, number
                self._ahead = {at: b for at, b in self._ahead.items() if at >= min(current)}
                self._ahead[following] = self._begin(*following)
        return self._in_use[epoch, block]

    def plan_ahead(self, epoch: int) -> None:
        """Begin to plan an epoch on a thread: with 28 million pairs it takes 6 seconds.

        Text that is segmented at random is planned by block, as it is segmented.
        """
        if self._sampled is None and (epoch, 0) not in self._ahead:
            thread = ThreadPoolExecutor(1)
            self._ahead = {(epoch, 0): thread.submit(self._planned, epoch, 0).result}
            thread.shutdown(wait=False)  # it ends when the plan is made

    def _begin(self, epoch: int, block: int) -> Callable[[], _Block]:
        """Begin to segment a block, if that is done at random; returns what makes its plan."""
        if self._sampled is None:
            return partial(self._planned, epoch, block)
        drawn = self._epoch(epoch)
        rows = drawn.blocks[block]
        first, counts = drawn.examples.first[rows].astype(np.int64), drawn.examples.counts[rows]
        sampled = self._sampled.block(epoch, spans(first, counts), counts)
        return partial(self._planned, epoch, block, sampled)

    def _planned(self, epoch: int, block: int, sampled: SampledBlock | None = None) -> _Block:
        """Sort the examples of a block by length, and cut them into batches."""
        drawn = self._epoch(epoch)
        examples = drawn.examples
        rows: NDArray[np.integer[Any]] = drawn.blocks[block]
        if sampled is not None:
            examples = self._fitting(sampled)
            rows = np.arange(len(sampled.counts))
        key, _ = _lengths(examples, self._count, rows)
        order = rows[_descending(key)]
        starts = _halved(self._cut(examples, rows), len(order), self._size)
        sizes, shuffled = np.diff(starts, append=len(order)), drawn.shuffles[block]
        return _Block(examples, order, starts[shuffled], sizes[shuffled])

    def _fitting(self, sampled: SampledBlock) -> Examples:
        """Return the examples of a block, whose text is segmented at random.

        The number of batches was estimated from a sample of the text. If it does not suffice, some
        examples keep the prepared segmentation, as many as necessary.
        """
        rows, kept = np.arange(len(sampled.counts)), 0
        while True:
            examples = consecutive(sampled.text(kept), sampled.counts)
            if kept == len(rows) or len(self._cut(examples, rows)) <= self._size:
                return examples
            kept = min(len(rows), 2 * kept + 1 + len(rows) // 16)

    def _epoch(self, epoch: int) -> _Epoch:
        """Return the examples of an epoch in random order; those of an epoch or two are kept."""
        if epoch in self._epochs:
            return self._epochs[epoch]
        for examples_epoch, order_epoch in ((epoch, epoch), (0, epoch), (0, 0)):
            drawn = self._shuffled_epoch(examples_epoch, order_epoch)
            if all(
                len(self._cut(drawn.examples, block)) <= self._size <= len(block)
                for block in drawn.blocks
            ):
                break
        if self._sampled is not None:  # else the only block has all that is needed
            self._epochs = {e: kept for e, kept in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = drawn
        return drawn

    def _shuffled_epoch(self, examples_epoch: int, order_epoch: int) -> _Epoch:
        """Return the examples of one epoch in the order of another."""
        # Philox counts: it gives the same numbers on every machine
        seeds = np.random.SeedSequence([self._seed, order_epoch])
        draw = np.random.Generator(np.random.Philox(seeds))
        chosen = self.examples(examples_epoch)
        rows = draw.permutation(len(chosen.first)).astype(np.uint32)
        blocks = np.array_split(rows, self._blocks)
        return _Epoch(chosen, blocks, [draw.permutation(self._size) for _ in blocks])

    def _cut(self, examples: Examples, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return where batches start among some examples, the longest first."""
        counted = _lengths(examples, self._count, rows)[1]
        return batch_starts(np.sort(counted)[::-1] + 1, self._budget)


def training_batches(settings: Settings, prepared: "Prepared", ranks: int) -> Batches:
    """Return the batches of a training as its settings want them; `ranks` share the cores.

    Raises UserError for a segmenter that cannot sample as they want.
    """
    data, options, seed = settings.data, settings.trainer, settings.seed
    sides = prepared.source, prepared.target
    sampled = sampled_text(data, prepared.train, sides, seed, ranks)
    budget, count = options.batch_tokens, options.batch_count
    joining = joining_of(data)
    corpora = prepared.train.corpora
    weights = [data.corpora[n].weight for n in corpora.names] if corpora else []
    return Batches(
        prepared.train, budget, count, seed, joining, sampled, options.accumulate, weights
    )


def in_order(store: Pairs, budget: int, count: str) -> Iterator[Batch]:
    """Yield all pairs once, always in the same order: longest first, then as in the file."""
    examples = alone(store)
    key, counted = _lengths(examples, count, slice(None))
    pairs = _descending(key)
    starts = batch_starts(counted[pairs] + 1, budget)
    for rows in np.split(pairs, starts[1:]):
        yield _batch(examples, rows)


def _lengths(
    examples: Examples, count: str, rows: NDArray[np.integer[Any]] | slice
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the sort key of some examples, and their length on the counted side, both [row]."""
    source, target = examples.source[rows], examples.target[rows]
    counted = {"source": source, "target": target, "max": np.maximum(source, target)}[count]
    other = source if count == "target" else target
    return counted.astype(np.int64) << 32 | other, counted


def _descending(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices from the greatest key on; equal keys keep their order."""
    return np.argsort(-keys, kind="stable")


def _halved(starts: NDArray[np.int64], total: int, count: int) -> NDArray[np.int64]:
    """Halve the largest batches until there are `count`."""
    sizes = np.diff(starts, append=total).tolist()
    heap = [(-size, start) for size, start in zip(sizes, starts.tolist(), strict=True)]
    heapify(heap)
    while len(heap) < count:
        size, start = heappop(heap)
        half = -size // 2
        heappush(heap, (-half, start))
        heappush(heap, (size + half, start + half))
    return np.array(sorted(start for _, start in heap), np.int64)


def _batch(examples: Examples, rows: NDArray[np.integer[Any]]) -> Batch:
    """Make a batch of examples; without columns if pairs are joined."""
    store = examples.text
    first, counts = examples.first[rows].astype(np.int64), examples.counts[rows]
    leading = {"source": store.count_leading(first), "target": None}
    source, target = (
        _padded(store.ids[s], store.offsets[s], first, counts, leading[s]) for s in SIDES
    )
    columns = {
        name: values[first][:, None].astype(np.int64)
        if store.per[name] == "sentence"
        else _padded(values, store.offsets["source"], first, counts)
        for name, values in (store.columns.items() if counts.max(initial=1) == 1 else ())
    }
    begin = np.full((len(rows), 1), BOS, np.int64)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(np.concatenate([begin, target], axis=1)),
        store.lines[first].tolist(),
        {name: torch.from_numpy(values) for name, values in columns.items()},
        store.pairs_of(first, counts),
    )


def _padded(
    values: NDArray[Any],
    offsets: NDArray[Any],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    leading: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Gather the ids (or integers) of some examples as [batch, longest], padded on the right.

    Pairs of one example are concatenated, without the EOS of all but the last, and without the
    `leading` pieces [batch] of all but the first: a tag, the code of a language.
    """
    pairs, ends = spans(first, counts), np.cumsum(counts)  # [pair], [batch]
    starts = offsets[pairs].astype(np.int64)
    lengths = offsets[pairs + 1].astype(np.int64) - starts - 1  # [pair]
    lengths[ends - 1] += 1
    if leading is not None:
        repeated = np.repeat(leading, counts)
        repeated[ends - counts] = 0
        starts, lengths = starts + repeated, lengths - repeated
    widths = np.add.reduceat(lengths, ends - counts)  # [batch]
    padded = np.full((len(first), widths.max()), PAD, np.int64)
    padded[np.arange(widths.max()) < widths[:, None]] = values[spans(starts, lengths)]
    return padded
