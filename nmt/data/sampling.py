"""Subword regularisation: the training text is segmented at random, anew in each epoch.

A model that has seen many segmentations of a word depends less on each (Kudo 2018, Subword
Regularization; Provilkov et al. 2020, BPE-Dropout). Text is cut anew from the prepared ids, so
nothing is prepared twice; development and test text keep their own segmentation.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt import config
from nmt.data.bpe import Bpe
from nmt.data.dropout import BpeDropout
from nmt.data.lattice import NBest, UnigramSampling
from nmt.data.side import Side
from nmt.data.store import SIDES, Pairs
from nmt.data.unigram import Unigram
from nmt.data.vocab import EOS
from nmt.errors import UserError

log = logging.getLogger(__name__)
TOGETHER = 10_000  # lines whose ids are plain integers at a time


class Sampler(Protocol):
    """One way to segment at random."""

    def line(self, ids: list[int], draw: Callable[[], float]) -> list[int]:
        """Segment a line anew, given by its own ids without EOS; `draw` gives numbers in [0, 1)."""


class Outcome(NamedTuple):
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


def sampled_text(
    data: config.Data, store: Pairs, sides: Sequence[Side], seed: int
) -> "SampledText | None":
    """The training text as settings ask for it; None where it keeps its own segmentation.

    Raises UserError for a segmenter that cannot sample so.
    """
    if not data.bpe_dropout and data.subword_alpha is None:
        return None
    samplers = [_sampler(data, name, side) for name, side in zip(SIDES, sides, strict=True)]
    return SampledText(store, samplers, seed, data.max_length)


def _sampler(data: config.Data, name: str, side: Side) -> Sampler:
    segmenter, vocabulary = side.segmenter, side.vocabulary
    if isinstance(segmenter, Bpe):
        return BpeDropout(segmenter, vocabulary, data.bpe_dropout)
    assert isinstance(segmenter, Unigram) and data.subword_alpha is not None, "see `refusal`"
    try:
        if data.subword_nbest is None:
            return UnigramSampling(segmenter, vocabulary, data.subword_alpha)
        return NBest(segmenter, vocabulary, data.subword_alpha, data.subword_nbest)
    except ValueError as error:
        raise UserError(f"data.subword_alpha={data.subword_alpha}: {name}: {error}") from None


class SampledText:
    """The training text, segmented at random.

    A line's segmentation is a function of seed, epoch and its number in the file alone. Where one
    would have more than `most` pieces, the line keeps its own: so the limit on the length holds,
    whose measure is the text's own segmentation. Integers per word do not follow the pieces and
    are left out; those per sentence stay.
    """

    def __init__(self, store: Pairs, samplers: Sequence[Sampler], seed: int, most: int) -> None:
        self._store, self._samplers, self._seed, self._most = store, samplers, seed, most
        self._made: tuple[int, Pairs] | None = None
        self.outcomes: dict[str, Outcome] = {}  # of the epoch that was made last
        self.seconds = 0.0  # that it took

    def epoch(self, epoch: int) -> Pairs:
        """The text of an epoch, from 0; the last one asked for is kept."""
        if self._made is None or self._made[0] != epoch:
            began = time.monotonic()
            store, sides = self._store, [self._side(number, epoch) for number in range(len(SIDES))]
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

    def _side(self, number: int, epoch: int) -> tuple[NDArray[np.integer[Any]], NDArray[np.uint64]]:
        """Ids of a side, all in a row, and where each line begins."""
        name, sampler = SIDES[number], self._samplers[number]
        own, ends = self._store.ids[name], self._store.offsets[name].astype(np.int64)
        generator = random.Random()
        parts, lengths, kept = [], np.diff(ends), 0
        for start in range(0, len(lengths), TOGETHER):
            rows = range(start, min(start + TOGETHER, len(lengths)))
            begin = int(ends[start])
            some = own[begin : int(ends[rows.stop])].tolist()
            lines = self._store.lines[start : rows.stop].tolist()
            bounds = (ends[start : rows.stop + 1] - begin).tolist()
            flat: list[int] = []
            for row, line in zip(rows, lines, strict=True):
                ids = some[bounds[row - start] : bounds[row - start + 1] - 1]
                generator.seed(((self._seed << 32 | epoch) << 32 | line) << 1 | number)
                pieces = sampler.line(ids, generator.random)
                if len(pieces) > self._most:
                    pieces, kept = ids, kept + 1
                flat += pieces
                flat.append(EOS)
                lengths[row] = len(pieces) + 1
            parts.append(np.array(flat, own.dtype))
        ids_in_a_row = np.concatenate(parts)
        self.outcomes[name] = Outcome(
            len(own) - len(lengths), len(ids_in_a_row) - len(lengths), kept
        )
        return ids_in_a_row, np.concatenate(([0], np.cumsum(lengths))).astype(np.uint64)
