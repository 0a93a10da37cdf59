"""Subword regularisation: the training text is segmented at random, anew in each epoch.

A model that has seen many segmentations of a word depends less on each (Kudo 2018, Subword
Regularization; Provilkov et al. 2020, BPE-Dropout). Text is cut anew from the prepared ids, so
nothing is prepared twice; development and test text keep their own segmentation. `Batches` asks for
blocks of lines, and for the next ones while it trains on these: memory holds no more of an epoch.
"""

import logging
import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt import config
from nmt.data import plain
from nmt.data.bpe import Bpe
from nmt.data.bpe.dropout import BpeDropout
from nmt.data.joining import Examples, joining_of
from nmt.data.parallel import Job, Pool, cores
from nmt.data.progress import shown
from nmt.data.side import Side
from nmt.data.store import SIDES, Pairs, spans
from nmt.data.unigram import Unigram
from nmt.data.unigram.sampling import NBest, UnigramSampling
from nmt.data.vocab import EOS
from nmt.errors import UserError

log = logging.getLogger(__name__)
BLOCK = 2**14  # lines of a block
TOGETHER = 2**11  # lines that a process segments at a time
SAMPLE = 2000  # lines that show by how much sampling lengthens the text


class Sampler(Protocol):
    """One way to segment at random."""

    def line(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        """Segment a line anew, given by its own ids without EOS; `draw` gives numbers in [0, 1)."""


def refusal(data: config.Data, segmenter: str) -> str | None:
    """Say why the segmenter of this kind cannot do what is asked for; None if it can."""
    if data.bpe_dropout and segmenter != "bpe":
        return (
            f"data.bpe_dropout={data.bpe_dropout}: leaves out merges, and segmenter.kind="
            f"{segmenter} has none; data.subword_alpha is its way to sample"
        )
    if data.subword_alpha is not None and segmenter == "bpe":
        return (
            f"data.subword_alpha={data.subword_alpha}: needs the probabilities of a unigram model, "
            "and segmenter.kind=bpe has none; data.bpe_dropout is its way to sample"
        )
    if data.subword_nbest is not None and data.subword_alpha is None:
        return f"data.subword_nbest={data.subword_nbest}: says nothing without data.subword_alpha"
    return None


class Sampling(NamedTuple):
    """How text is segmented at random, as the keys of `data` say it."""

    dropout: float
    alpha: float | None
    nbest: int | None

    def samplers(self, sides: Sequence[Side]) -> list[Sampler]:
        """Those of both sides; UserError for a segmenter that cannot sample so."""
        return [self.sampler(name, side) for name, side in zip(SIDES, sides, strict=True)]

    def sampler(self, name: str, side: Side) -> Sampler:
        """That of a side; UserError for a segmenter that cannot sample so."""
        segmenter, vocabulary = side.segmenter, side.vocabulary
        if isinstance(segmenter, Bpe):
            return BpeDropout(segmenter, vocabulary, self.dropout)
        assert isinstance(segmenter, Unigram) and self.alpha is not None, "see `refusal`"
        try:
            if self.nbest is None:
                return UnigramSampling(segmenter, vocabulary, self.alpha)
            return NBest(segmenter, vocabulary, self.alpha, self.nbest)
        except ValueError as error:
            raise UserError(f"data.subword_alpha={self.alpha}: {name}: {error}") from None


class Elsewhere(NamedTuple):
    """What other processes need to segment the text, and how many there are to be."""

    prepared: Path  # directory of the prepared corpus
    sampling: Sampling
    workers: int


def sampled_text(
    data: config.Data, store: Pairs, sides: Sequence[Side], seed: int, prepared: Path, ranks: int
) -> "SampledText | None":
    """The training text as settings ask for it; None where it keeps its own segmentation.

    `prepared`: the directory that it comes from; `ranks`: trainings that share the cores. Raises
    UserError for a segmenter that cannot sample so.
    """
    if not data.bpe_dropout and data.subword_alpha is None:
        return None
    sampling = Sampling(data.bpe_dropout, data.subword_alpha, data.subword_nbest)
    joining = joining_of(data)
    limits = data.max_length, data.max_length if joining is None else joining.length
    # two at least, unless fewer are asked for: with one, training would wait for each block
    workers = data.workers // ranks if data.workers else max(2, cores() // ranks)
    workers = workers if len(store) > BLOCK else 1
    elsewhere = Elsewhere(prepared, sampling, workers) if workers > 1 else None
    return SampledText(store, sampling.samplers(sides), seed, limits, elsewhere)


class Work(NamedTuple):
    """Some lines, and how they are to be segmented."""

    pairs: Pairs
    seed: int
    epoch: int


def segment(samplers: Sequence[Sampler], work: Work) -> Pairs:
    """Segment lines at random: each by seed, epoch, its number in the file and side alone."""
    ids, offsets, generator = {}, {}, random.Random()
    lines = work.pairs.lines.tolist()
    for number, (side, sampler) in enumerate(zip(SIDES, samplers, strict=True)):
        own = work.pairs.ids[side]
        every, bounds = own.tolist(), work.pairs.offsets[side].tolist()
        flat, ends = list[int](), [0]
        for line, start, stop in zip(lines, bounds[:-1], bounds[1:], strict=True):
            generator.seed(((work.seed << 32 | work.epoch) << 32 | line) << 1 | number)
            flat += sampler.line(every[start : stop - 1], generator.random)
            flat.append(EOS)
            ends.append(len(flat))
        ids[side], offsets[side] = np.array(flat, own.dtype), np.array(ends, np.int64)
    return Pairs(work.pairs.lines, ids, offsets)


def segment_elsewhere(task: tuple[Elsewhere, Work]) -> Pairs:
    """Do the same in a process that has nothing yet."""
    elsewhere, work = task
    return segment(_samplers(elsewhere.prepared, elsewhere.sampling), work)


@lru_cache(maxsize=1)
def _samplers(prepared: Path, sampling: Sampling) -> list[Sampler]:
    files = (plain.read_json(prepared / f"{side}.json") for side in SIDES)
    return sampling.samplers([Side.from_json(file) for file in files])


class SampledText:
    """The training text, segmented at random.

    A line's segmentation is a function of seed, epoch and its number in the file alone. Where one
    would have more than `data.max_length` pieces, the line keeps its own, and where an example of
    several lines would have more than `data.join_length`, its lines do: so the limits on the length
    hold, whose measure is the text's own segmentation. Integers per word do not follow the pieces
    and are left out; those per sentence stay.
    """

    def __init__(
        self,
        store: Pairs,
        samplers: Sequence[Sampler],
        seed: int,
        limits: tuple[int, int],
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`limits`: pieces of a line, and of an example of several; `elsewhere`: not here."""
        self._store, self._samplers, self._seed, self._limits = store, samplers, seed, limits
        self._elsewhere = elsewhere
        self._pool = Pool(1 if elsewhere is None else elsewhere.workers)
        rows = np.unique(np.linspace(0, len(store) - 1, SAMPLE).astype(np.int64))
        pairs = store.some(rows)
        sample = SampledBlock(pairs, np.ones_like(rows), self._begin(pairs, 0), limits)
        text = sample.text()
        before, after = (
            np.stack([lines.source_lengths, lines.target_lengths]) for lines in (pairs, text)
        )
        self._growth = np.maximum(after / np.maximum(before, 1), 1.0)  # [side, line of the sample]
        self._means = after.sum(axis=1) / before.sum(axis=1)  # [side]
        self._kept = sample.kept / (2 * len(rows))

    def expected(self, examples: Examples) -> Examples:
        """Examples with lengths such as they may come to have: as lines of the sample grew."""
        grown = (
            np.ceil(lengths * np.resize(growth, len(lengths))).astype(np.int32)
            for lengths, growth in zip(examples[2:], self._growth, strict=True)
        )
        return Examples(*examples[:2], *grown)

    def block(
        self, epoch: int, rows: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> "SampledBlock":
        """Begin to segment some pairs, so many of each example [example]."""
        pairs = self._store.some(rows)
        return SampledBlock(pairs, counts, self._begin(pairs, epoch), self._limits)

    def _begin(self, pairs: Pairs, epoch: int) -> list[Job[Pairs]]:
        """Begin to segment pairs, some at a time."""
        parts = np.array_split(np.arange(len(pairs)), -(-len(pairs) // TOGETHER))
        works = [Work(pairs.some(part), self._seed, epoch) for part in parts]
        if self._elsewhere is None:
            here = partial(segment, self._samplers)
            return [self._pool.submit(here, work) for work in works]
        return [self._pool.submit(segment_elsewhere, (self._elsewhere, work)) for work in works]

    def close(self) -> None:
        """End the processes that segment ahead."""
        self._pool.close()

    def report(self) -> None:
        """Say what sampling makes of the text."""
        log.info(
            "segmented at random: %+.1f %% source and %+.1f %% target pieces; %.1f %% of the lines "
            "keep their own pieces: others would exceed data.max_length",
            *(100 * (mean - 1) for mean in self._means),
            100 * self._kept,
        )


class SampledBlock:
    """Some lines of the text that are being segmented at random."""

    def __init__(
        self,
        own: Pairs,
        counts: NDArray[np.int64],
        jobs: Sequence[Job[Pairs]],
        limits: tuple[int, int],
    ) -> None:
        """`own`: the lines as they are; `jobs`: parts of them in a row, for SampledText.limits."""
        self.counts = counts  # [example] lines
        self._own, self._jobs, self._limits = own, jobs, limits
        self._drawn: Pairs | None = None
        self.kept = 0  # lines of either side that keep their own pieces

    def text(self, kept: int = 0) -> Pairs:
        """The lines, segmented at random but for those of the first `kept` examples.

        It waits for those who do it, and shows how far they are.
        """
        own, drawn, self.kept = self._own, self._segmented(), 0
        ids, offsets = {}, {}
        example = np.repeat(np.arange(len(self.counts)), self.counts)  # [line]
        most, most_joined = self._limits
        for side in SIDES:
            before, lengths = (np.diff(text.offsets[side]) for text in (own, drawn))
            keeps = (lengths - 1 > most) | (example < kept)
            pieces = np.bincount(example, np.where(keeps, before, lengths) - 1)
            keeps |= ((self.counts > 1) & (pieces > most_joined))[example]
            lengths = np.where(keeps, before, lengths)
            behind = drawn.offsets[side][:-1] + len(own.ids[side])
            starts = np.where(keeps, own.offsets[side][:-1], behind)
            both = np.concatenate([own.ids[side], drawn.ids[side]])
            ids[side] = both[spans(starts, lengths)]
            offsets[side] = np.append(0, np.cumsum(lengths))
            self.kept += int(keeps.sum())
        return Pairs(own.lines, ids, offsets, own.per, own.columns)

    def _segmented(self) -> Pairs:
        """All lines, segmented at random; progress is shown."""
        if self._drawn is None:
            jobs, own = self._jobs, self._own
            lines = len(own)
            sizes = [len(part) for part in np.array_split(np.arange(lines), len(jobs))]
            what = "segmenting at random"
            parts = list(shown((job.result() for job in jobs), what, sizes))
            ids = {side: np.concatenate([part.ids[side] for part in parts]) for side in SIDES}
            lengths = {
                side: np.concatenate([np.diff(part.offsets[side]) for part in parts])
                for side in SIDES
            }
            offsets = {side: np.append(0, np.cumsum(lengths[side])) for side in SIDES}
            self._drawn, self._jobs = Pairs(own.lines, ids, offsets), []
        return self._drawn
