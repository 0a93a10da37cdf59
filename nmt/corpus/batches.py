"""Batches of pairs of like length; a function of seed and epoch alone, so that a run can resume."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.config.settings import Settings
from nmt.corpus.examples import (
    Examples,
    Ints,
    Joining,
    draw_examples,
    find_longest,
    joining_of,
    make_examples,
    random_of,
)
from nmt.corpus.grouping import batch_starts
from nmt.corpus.pairs import Pairs, spans
from nmt.corpus.prepare import Prepared
from nmt.corpus.sampling import RandomSegmentation, make_samplers, measure_growth
from nmt.errors import UserError
from nmt.system.pool import Call, WorkerPool
from nmt.system.resources import cores
from nmt.text.vocab import BOS, PAD

log = logging.getLogger(__name__)
FEW = 2**14  # pairs for which no workers are started


class Batch(NamedTuple):
    """Pairs of like length, padded on the right with PAD."""

    source: Tensor  # [batch, source] ids, each row ends in EOS
    target: Tensor  # [batch, target] ids, BOS ... EOS
    lines: list[int]  # [batch] line number of each (first) pair, as in `Pairs`
    columns: dict[str, Tensor]  # [batch, source], padded with 0, or [batch, 1] per sentence


class Plan(NamedTuple):
    """The batches of an epoch."""

    examples: Examples
    order: Ints  # [example] numbers of examples, longest first
    starts: Ints  # [batch] where each batch begins in `order`, in training order
    sizes: Ints  # [batch] examples of each batch, in training order


class Batches:
    """Cuts a text into batches of at most `budget` tokens, differently in each epoch.

    The budget counts the tokens of one side (or of each pair's longer one), with EOS and padding.
    Pairs are sorted by length, equal ones in random order, so that a batch has little padding;
    then the batches are shuffled. A pair longer than the budget is a batch by itself.

    With `joining` or weights of corpora, other examples are drawn in each epoch, and epochs may
    differ in their number of batches. With `segmentation`, text is segmented at random when a batch
    is made, by `workers` if there are several. Batches are then planned for the length that text
    has on average; one that exceeds the budget is cut in two, repeatedly.
    """

    def __init__(
        self,
        store: Pairs,
        budget: int,
        count: str,
        seed: int,
        joining: Joining | None = None,
        segmentation: RandomSegmentation | None = None,
        weights: Sequence[float] = (),
        workers: int = 1,
    ) -> None:
        self._store, self._budget, self._count, self._seed = store, budget, count, seed
        self._joining, self._segmentation, self._weights = joining, segmentation, weights
        self._growth = dict[str, float]()  # by side, where text is segmented at random
        self.workers = WorkerPool()
        if segmentation is not None:
            self._growth = measure_growth(store, segmentation)
            advice = f"set data.workers below {workers}"
            self.workers = WorkerPool(workers, "data.workers", advice, [self._segment])
        self._plans: dict[int, Plan] = {}
        self._begun: dict[tuple[int, int], Call[Pairs]] = {}

    @cached_property
    def longest(self) -> dict[str, int]:
        """Pieces of the longest example that any epoch may have, by side; empty without joining."""
        return {} if self._joining is None else find_longest(self._store, self._joining)

    @property
    def pairs(self) -> int:
        return int(self.plan(0).examples.counts.sum())

    def size(self, epoch: int) -> int:
        return len(self.plan(epoch).starts)

    def plan(self, epoch: int) -> Plan:
        """Return the batches of an epoch; to plan 28 million pairs takes some 6 seconds."""
        if epoch not in self._plans:
            drawn = draw_examples(self._store, self._joining, self._weights, self._seed, epoch)
            if not len(drawn.first):
                raise UserError(f"data.corpora: no pair is in epoch {epoch + 1}; raise a weight")
            lengths = drawn.lengths | {
                side: np.ceil(drawn.lengths[side] * growth).astype(np.int32)
                for side, growth in self._growth.items()
            }
            draw = random_of(self._seed, epoch)
            shuffled = draw.permutation(len(drawn.first)).astype(np.uint32)
            order, sorted_lengths = _sort_by_length(shuffled, lengths, self._count)
            starts = batch_starts(sorted_lengths, self._budget)
            batches, sizes = draw.permutation(len(starts)), np.diff(starts, append=len(order))
            kept = {e: plan for e, plan in self._plans.items() if e == epoch - 1}
            self._plans = {**kept, epoch: Plan(drawn, order, starts[batches], sizes[batches])}
        return self._plans[epoch]

    def batch(self, epoch: int, index: int) -> list[Batch]:
        """Make batch number `index` of an epoch, in its parts; IndexError beyond the last one."""
        first, counts = self._examples(epoch, index)
        if self._segmentation is None:
            return [_batch(self._store, first, counts)]
        begun = self._begun.pop((epoch, index), None)
        text = (begun or self.workers.submit(self._segment, epoch, first, counts)).result()
        first, counts, lengths = make_examples(text, counts)
        rows, sorted_lengths = _sort_by_length(np.arange(len(first)), lengths, self._count)
        parts = _halve(rows, sorted_lengths, self._budget)
        return [_batch(text, first[part], counts[part]) for part in parts]

    def begin(self, epoch: int, indices: Iterable[int]) -> None:
        """Have workers, if there are any, segment the text of some batches that come next."""
        for at in ((epoch, index) for index in indices if self.workers.count):
            if at not in self._begun:
                self._begun[at] = self.workers.submit(self._segment, epoch, *self._examples(*at))

    def report(self) -> None:
        """Log the shares of corpora, how many lines are joined, and what sampling changes."""
        examples = self.plan(0).examples
        counts, total = examples.counts, self.pairs
        if (corpora := self._store.corpora) is not None:
            pairs = zip(
                corpora.names, self._store.count_by_corpus(examples.first, counts), strict=True
            )
            shares = (f"{n:,} pairs of {name} ({100 * n / total:.1f} %)" for name, n in pairs)
            log.info("the first epoch has %s", ", ".join(shares))
        if self._joining is not None:
            several = counts[counts > 1]
            share = f"{100 * several.sum() / total:.1f} % of {total:,} training lines"
            number = f"{len(several):,} of {len(counts):,} examples of an epoch"
            longest = f"longest source {self.longest['source']} pieces"
            log.info("joined: %s, in %s; %s", share, number, longest)
        if self._growth:
            changes = (f"{100 * (g - 1):+.1f} % {s} pieces" for s, g in self._growth.items())
            log.info("segmented at random: %s", ", ".join(changes))

    def _examples(self, epoch: int, index: int) -> tuple[Ints, NDArray[np.int64]]:
        """Return the first pair and the number of pairs of each example of a batch [batch]."""
        plan = self.plan(epoch)
        start = plan.starts[index]
        rows = plan.order[start : start + plan.sizes[index]]
        return plan.examples.first[rows].astype(np.int64), plan.examples.counts[rows]

    def _segment(self, epoch: int, first: Ints, counts: NDArray[np.int64]) -> Pairs:
        assert self._segmentation is not None
        return self._segmentation.segment(self._store.select(spans(first, counts)), counts, epoch)


def training_batches(settings: Settings, prepared: Prepared, ranks: int) -> Batches:
    """Return the batches that the settings ask for; `ranks` processes share the cores.

    Raises UserError for a segmenter that cannot sample as requested.
    """
    data, options, store = settings.data, settings.trainer, prepared.train
    joining, segmentation = joining_of(data), None
    if of_sides := make_samplers(data, (prepared.source, prepared.target)):
        length = data.max_length if joining is None else joining.max_length
        segmentation = RandomSegmentation(of_sides, settings.seed, data.max_length, length)
    # two at least, unless fewer are wanted: with one, training would wait for each batch
    workers = max(2, cores() // ranks) if len(store) > FEW else 1
    return Batches(
        store,
        options.batch_tokens,
        options.batch_count,
        settings.seed,
        joining,
        segmentation,
        [data.corpora[n].weight for n in store.corpora.names] if store.corpora else [],
        max(1, data.workers // ranks) if data.workers else workers,
    )


def in_order(store: Pairs, budget: int, count: str) -> Iterator[Batch]:
    """Yield all pairs once, always in the same order: longest first, then as in the file."""
    pairs, lengths = _sort_by_length(np.arange(len(store)), store.lengths, count)
    for rows in np.split(pairs, batch_starts(lengths, budget)[1:]):
        yield _batch(store, rows, np.ones(len(rows), np.int64))


def _sort_by_length(
    order: Ints, lengths: Mapping[str, NDArray[np.int32]], count: str
) -> tuple[Ints, NDArray[np.int32]]:
    """Sort numbers of examples by the lengths of these, the longest first.

    Equal ones stay as they are. Also returns their lengths on the counted side, with EOS, sorted.
    """
    counted = {**lengths, "max": np.maximum(*lengths.values())}[count]
    other = lengths["source" if count == "target" else "target"]
    keys = counted.astype(np.int64) << 32 | other
    order = order[np.argsort(-keys[order], kind="stable")]
    return order, counted[order] + 1


def _halve(rows: Ints, lengths: NDArray[np.int32], budget: int) -> list[Ints]:
    """Halve examples, sorted by length, until each part is within the budget."""
    if len(rows) == 1 or len(rows) * int(lengths[0]) <= budget:
        return [rows]
    halves = zip(np.array_split(rows, 2), np.array_split(lengths, 2), strict=True)
    return [part for half in halves for part in _halve(*half, budget)]


def _batch(store: Pairs, first: Ints, counts: NDArray[np.int64]) -> Batch:
    """Make a batch of examples of consecutive pairs; without columns if pairs are joined."""
    source = _pad(store.ids["source"], store.offsets["source"], first, counts,
                     store.count_leading(first))  # fmt: skip
    target = _pad(store.ids["target"], store.offsets["target"], first, counts)
    columns = {
        name: values[first][:, None].astype(np.int64)
        if store.per[name] == "sentence"
        else _pad(values, store.offsets["source"], first, counts)
        for name, values in (store.columns.items() if counts.max(initial=1) == 1 else ())
    }
    begin = np.full((len(first), 1), BOS, np.int64)
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(np.concatenate([begin, target], axis=1)),
        store.lines[first].tolist(),
        {name: torch.from_numpy(values) for name, values in columns.items()},
    )


def _pad(
    values: NDArray[Any],
    offsets: NDArray[Any],
    first: Ints,
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
