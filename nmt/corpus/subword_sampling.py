"""Subword regularisation: the training text is segmented at random, differently in each epoch.

A model that has seen many segmentations of a word depends less on each (Kudo 2018, Subword
Regularization; Provilkov et al. 2020, BPE-Dropout). Text is segmented from the prepared ids, so
nothing is prepared twice; development and test text keep their own segmentation. `Batches` takes
blocks of lines, and begins the next ones while training uses these: memory holds no more of an
epoch.
"""

import logging
import random
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data
from nmt.corpus.examples import Examples, joining_of
from nmt.corpus.pairs import SIDES, Pairs, spans
from nmt.errors import UserError
from nmt.machine.cpus import cores
from nmt.machine.pool import executor
from nmt.text.bpe import Bpe, BpeDropout
from nmt.text.side import Side, Sides
from nmt.text.unigram import NBest, Unigram
from nmt.text.vocab import EOS

log = logging.getLogger(__name__)
BLOCK = 2**14  # lines of a block
TOGETHER = 2**11  # lines that a worker segments at a time
Sampler: TypeAlias = BpeDropout | NBest
SAMPLE = 2000  # lines that show by how much sampling lengthens the text
BPE = ("bpe", "codes")  # kinds of segmenters that have merges


def refusal(data: Data, segmenter: str) -> str | None:
    """Say why a segmenter of this kind cannot sample as `data` wants; None if it can."""
    if data.bpe_dropout and segmenter not in BPE:
        return (
            f"data.bpe_dropout={data.bpe_dropout}: leaves out merges, and segmenter.kind="
            f"{segmenter} has none; data.subword_alpha is its way to sample"
        )
    if data.subword_alpha is not None and segmenter in BPE:
        return (
            f"data.subword_alpha={data.subword_alpha}: needs the probabilities of a unigram model, "
            f"and segmenter.kind={segmenter} has none; data.bpe_dropout is its way to sample"
        )
    return None


def sampled_text(
    data: Data, store: Pairs, sides: Sides, seed: int, ranks: int
) -> "SampledText | None":
    """Return the training text as settings want it; None where it keeps its own segmentation.

    `ranks`: how many trainings share the cores. Raises UserError for a segmenter that cannot sample
    so.
    """
    if not (of_sides := samplers(data, sides)):
        return None
    joining = joining_of(data)
    limits = data.max_length, data.max_length if joining is None else joining.max_length
    # two at least, unless fewer are wanted: with one, training would wait for each block
    workers = max(1, data.workers // ranks) if data.workers else max(2, cores() // ranks)
    workers = workers if len(store) > BLOCK else 1
    return SampledText(store, RandomSegmentation(of_sides, seed), limits, workers)


def samplers(data: Data, sides: Sides) -> list[Sampler]:
    """Return those of both sides, or none where the text keeps its own segmentation.

    Raises UserError for a segmenter that cannot sample so.
    """
    if not data.bpe_dropout and data.subword_alpha is None:
        return []
    return [_sampler(data, name, side) for name, side in zip(SIDES, sides, strict=True)]


def _sampler(data: Data, name: str, side: Side) -> Sampler:
    segmenter, vocabulary = side.segmenter, side.vocabulary
    if why := refusal(data, segmenter.kind):
        raise UserError(why)
    if isinstance(segmenter, Bpe):
        return BpeDropout(segmenter, vocabulary, data.bpe_dropout)
    assert isinstance(segmenter, Unigram) and data.subword_alpha is not None, "see `refusal`"
    try:
        return NBest(segmenter, vocabulary, data.subword_alpha, data.subword_nbest)
    except ValueError as error:
        raise UserError(f"data.subword_alpha={data.subword_alpha}: {name}: {error}") from None


class RandomSegmentation(NamedTuple):
    """Segments lines at random: each by seed, epoch, its number in the file and side alone."""

    samplers: Sequence[Sampler]  # of source and target
    seed: int

    def segment(self, pairs: Pairs, epoch: int) -> Pairs:
        """Segment both sides of some lines."""
        ids, offsets = {}, {}
        lines, state = pairs.lines.tolist(), random.getstate()
        for number, (side, sampler) in enumerate(zip(SIDES, self.samplers, strict=True)):
            prepared, bounds = pairs.ids[side].tolist(), pairs.offsets[side].tolist()
            flat, ends = list[int](), [0]
            for line, start, stop in zip(lines, bounds[:-1], bounds[1:], strict=True):
                random.seed(((self.seed << 32 | epoch) << 32 | line) << 1 | number)
                flat += sampler.line(prepared[start : stop - 1])
                flat.append(EOS)
                ends.append(len(flat))
            ids[side] = np.array(flat, pairs.ids[side].dtype)
            offsets[side] = np.array(ends, np.int64)
        random.setstate(state)
        return Pairs(pairs.lines, ids, offsets)


class SampledText:
    """The training text, segmented at random, ahead of training within `with text.pool`.

    A line's segmentation is a function of seed, epoch and its number in the file alone. Where it
    would have more than `data.max_length` pieces, the line keeps the prepared one, and where an
    example of several lines would have more than `data.join_length`, all its lines do: so the
    limits on the length hold. Columns with an integer per word do not follow the pieces and are
    left out; those per sentence stay.
    """

    def __init__(
        self,
        store: Pairs,
        segmentation: RandomSegmentation,
        limits: tuple[int, int],
        workers: int = 1,
    ) -> None:
        """`limits`: pieces of a line, and of an example of several lines."""
        self._store, self._segmentation, self._limits = store, segmentation, limits
        advice = f"set data.workers below {workers}"
        self.pool = executor(workers, "data.workers", advice, [segmentation.segment])
        rows = np.unique(np.linspace(0, len(store) - 1, SAMPLE).astype(np.int64))
        pairs = store.select(rows)
        before, drawn = (
            np.stack([text.source_lengths, text.target_lengths])
            for text in (pairs, segmentation.segment(pairs, 0))
        )
        keeps = drawn > limits[0]
        after = np.where(keeps, before, drawn)
        self._growth = np.maximum(after / np.maximum(before, 1), 1.0)  # [side, line of the sample]
        self._means = after.sum(axis=1) / before.sum(axis=1)  # [side]
        self._kept = keeps.mean()

    def expected(self, examples: Examples) -> Examples:
        """Return examples with lengths as they may become: as the lines of the sample grew."""
        source, target = (
            np.ceil(lengths * np.resize(growth, len(lengths))).astype(np.int32)
            for lengths, growth in zip(
                (examples.source, examples.target), self._growth, strict=True
            )
        )
        return examples._replace(source=source, target=target)

    def block(
        self, epoch: int, rows: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> "SampledBlock":
        """Begin to segment some pairs, so many of each example [example]."""
        pairs, segment = self._store.select(rows), self._segmentation.segment
        parts = np.array_split(np.arange(len(pairs)), -(-len(pairs) // TOGETHER))
        drawn = [self.pool.submit(segment, pairs.select(part), epoch) for part in parts]
        return SampledBlock(pairs, counts, drawn, self._limits)

    def report(self) -> None:
        """Log what sampling makes of the text."""
        log.info(
            "segmented at random: %+.1f %% source and %+.1f %% target pieces; %.1f %% of the lines "
            "keep their own pieces: others would exceed data.max_length",
            *(100 * (mean - 1) for mean in self._means),
            100 * self._kept,
        )


class SampledBlock(NamedTuple):
    """Some lines of the text that are being segmented at random."""

    prepared: Pairs  # the lines as they are
    counts: NDArray[np.int64]  # [example] lines
    drawn: Sequence[Future[Pairs]]  # parts of the new ones, in their order
    limits: tuple[int, int]  # as of SampledText

    def text(self, kept: int = 0) -> Pairs:
        """Wait for the lines, segmented at random but for those of the first `kept` examples."""
        prepared, drawn = self.prepared, [future.result() for future in self.drawn]
        ids, offsets = {}, {}
        example = np.repeat(np.arange(len(self.counts)), self.counts)  # [line]
        max_pieces, max_joined = self.limits
        for side in SIDES:
            before = np.diff(prepared.offsets[side])
            lengths = np.concatenate([np.diff(part.offsets[side]) for part in drawn])
            after = np.cumsum(lengths) - lengths + len(prepared.ids[side])
            keeps = (lengths - 1 > max_pieces) | (example < kept)
            pieces = np.bincount(example, np.where(keeps, before, lengths) - 1)
            keeps |= ((self.counts > 1) & (pieces > max_joined))[example]
            lengths = np.where(keeps, before, lengths)
            starts = np.where(keeps, prepared.offsets[side][:-1], after)
            candidates = np.concatenate([prepared.ids[side], *(part.ids[side] for part in drawn)])
            ids[side] = candidates[spans(starts, lengths)]
            offsets[side] = np.append(0, np.cumsum(lengths))
        kept_facts = prepared.per, prepared.columns, prepared.corpora, prepared.codes
        return Pairs(prepared.lines, ids, offsets, *kept_facts)
