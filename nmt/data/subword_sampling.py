"""Subword regularisation: the training text is segmented at random, anew in each epoch.

A model that has seen many segmentations of a word depends less on each (Kudo 2018, Subword
Regularization; Provilkov et al. 2020, BPE-Dropout). Text is cut anew from the prepared ids, so
nothing is prepared twice; development and test text keep their own segmentation.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt import config
from nmt.data import plain
from nmt.data.bpe import Bpe
from nmt.data.dropout import BpeDropout
from nmt.data.lattice import NBest, UnigramSampling
from nmt.data.parallel import Pool, cores
from nmt.data.side import Side
from nmt.data.store import SIDES, Pairs, PairStore
from nmt.data.unigram import Unigram
from nmt.data.vocab import EOS
from nmt.errors import UserError

log = logging.getLogger(__name__)
TOGETHER = 10_000  # lines that are cut at a time, by one process
MANY = 100_000  # lines of a text for which it pays to start processes, in each epoch


class Sampler(Protocol):
    """One way to segment at random."""

    def line(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        """Segment a line anew, given by its own ids without EOS; `draw` gives numbers in [0, 1)."""


class SampledSide(NamedTuple):
    """What came of one side of an epoch."""

    own: int  # pieces of the text's own segmentation
    sampled: int  # pieces that took their place
    kept: int  # lines that keep their own, since others would have been too many


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
    samplers = [sampling.sampler(name, side) for name, side in zip(SIDES, sides, strict=True)]
    elsewhere = Elsewhere(prepared, sampling, (data.workers or cores()) // ranks)
    return SampledText(store, samplers, seed, data.max_length, elsewhere)


class Work(NamedTuple):
    """Some lines of a side, and how they are to be cut."""

    number: int  # of the side, in SIDES
    rows: range
    seed: int
    epoch: int
    most: int  # pieces of a line


class Made(NamedTuple):
    """What came of it."""

    ids: NDArray[np.integer[Any]]  # all in a row, each line with its EOS
    lengths: list[int]  # EOS included
    kept: int  # lines that keep their own pieces


def cut(store: Pairs, sampler: Sampler, work: Work) -> Made:
    """Segment some lines of a side anew."""
    name, rows = SIDES[work.number], work.rows
    own, ends = store.ids[name], store.offsets[name][rows.start : rows.stop + 1].astype(np.int64)
    begin = int(ends[0])
    some = own[begin : int(ends[-1])].tolist()
    bounds = (ends - begin).tolist()
    generator = random.Random()
    flat, lengths, kept = list[int](), list[int](), 0
    for line, start, stop in zip(
        store.lines[rows.start : rows.stop].tolist(), bounds[:-1], bounds[1:], strict=True
    ):
        ids = some[start : stop - 1]
        generator.seed(((work.seed << 32 | work.epoch) << 32 | line) << 1 | work.number)
        pieces = sampler.line(ids, generator.random)
        if len(pieces) > work.most:
            pieces, kept = ids, kept + 1
        flat += pieces
        flat.append(EOS)
        lengths.append(len(pieces) + 1)
    return Made(np.array(flat, own.dtype), lengths, kept)


def cut_elsewhere(task: tuple[Elsewhere, Work]) -> Made:
    """What `cut` does, in a process that has nothing yet."""
    elsewhere, work = task
    return cut(*_opened(elsewhere.prepared, elsewhere.sampling, work.number), work)


@lru_cache(maxsize=2)
def _opened(prepared: Path, sampling: Sampling, number: int) -> tuple[Pairs, Sampler]:
    name = SIDES[number]
    side = Side.from_json(plain.read_json(prepared / f"{name}.json"))
    return PairStore(prepared / "train"), sampling.sampler(name, side)


class SampledText:
    """The training text, segmented at random.

    A line's segmentation is a function of seed, epoch and its number in the file alone. Where one
    would have more than `most` pieces, the line keeps its own: so the limit on the length holds,
    whose measure is the text's own segmentation. Integers per word do not follow the pieces and
    are left out; those per sentence stay.
    """

    def __init__(
        self,
        store: Pairs,
        samplers: Sequence[Sampler],
        seed: int,
        most: int,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`elsewhere`: where processes find the same, which cut a text of MANY lines or more."""
        self._store, self._samplers, self._seed, self._most = store, samplers, seed, most
        self._elsewhere = elsewhere
        self._made: tuple[int, Pairs] | None = None
        self.outcomes: dict[str, SampledSide] = {}  # of the epoch that was made last
        self.seconds = 0.0  # that it took

    def epoch(self, epoch: int) -> Pairs:
        """The text of an epoch, from 0; the last one asked for is kept."""
        if self._made is None or self._made[0] != epoch:
            began = time.monotonic()
            store = self._store
            sides = [self._side(number, made) for number, made in enumerate(self._cut(epoch))]
            ids = {name: side[0] for name, side in zip(SIDES, sides, strict=True)}
            offsets = {name: side[1] for name, side in zip(SIDES, sides, strict=True)}
            per = {name: each for name, each in store.per.items() if each == "sentence"}
            columns = {name: store.columns[name] for name in per}
            self._made = epoch, Pairs(store.lines, ids, offsets, per, columns)
            self.seconds = time.monotonic() - began
        return self._made[1]

    def report(self) -> None:
        """Say what came of the epoch that was made last."""
        more = [100 * (o.sampled / max(1, o.own) - 1) for o in self.outcomes.values()]
        log.info(
            "segmented at random: %+.1f %% source and %+.1f %% target pieces, in %.1f s an epoch; "
            "%s lines keep their own pieces: others would exceed data.max_length",
            *more,
            self.seconds,
            f"{sum(o.kept for o in self.outcomes.values()):,}",
        )

    def _cut(self, epoch: int) -> Iterator[Iterator[Made]]:
        """What becomes of the lines of both sides."""
        lines = len(self._store)
        elsewhere = self._elsewhere if lines >= MANY else None
        workers = 1 if elsewhere is None else elsewhere.workers
        with Pool(workers) as pool:
            for number, sampler in enumerate(self._samplers):
                starts = range(0, lines, TOGETHER)
                rows = [range(start, min(start + TOGETHER, lines)) for start in starts]
                tasks = [Work(number, some, self._seed, epoch, self._most) for some in rows]
                if elsewhere is not None and workers > 1:
                    yield pool.in_order(cut_elsewhere, [(elsewhere, task) for task in tasks])
                else:
                    yield (cut(self._store, sampler, task) for task in tasks)

    def _side(
        self, number: int, made: Iterable[Made]
    ) -> tuple[NDArray[np.integer[Any]], NDArray[np.uint64]]:
        """Ids of a side, all in a row, and where each line begins."""
        parts = list(made)
        ids = np.concatenate([part.ids for part in parts])
        ends = np.cumsum([0, *chain.from_iterable(part.lengths for part in parts)])
        own, lines = len(self._store.ids[SIDES[number]]), len(self._store)
        kept = sum(part.kept for part in parts)
        self.outcomes[SIDES[number]] = SampledSide(own - lines, len(ids) - lines, kept)
        return ids, ends.astype(np.uint64)
