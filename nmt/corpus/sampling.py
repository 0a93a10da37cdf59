"""Subword regularisation: the training text is segmented at random, differently in each epoch.

A model that has seen many segmentations of a word depends less on each (Kudo 2018, Subword
Regularization; Provilkov et al. 2020, BPE-Dropout). Text is segmented again from its prepared ids,
when a batch is made; development and test text keep their prepared segmentation.
"""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES, Pairs
from nmt.errors import UserError
from nmt.text.bpe import Bpe, BpeDropout
from nmt.text.side import Sides
from nmt.text.unigram import NBest
from nmt.text.vocab import EOS

BPE = ("bpe", "codes")  # kinds of segmenters that have merges
SAMPLE = 2000  # lines that show by how much sampling lengthens the text
Sampler: TypeAlias = BpeDropout | NBest


def check_sampling(data: Data, segmenter: str) -> None:
    """Raise UserError if a segmenter of this kind cannot sample as `data` asks."""
    if segmenter in BPE and data.subword_alpha is not None:
        raise UserError(
            f"data.subword_alpha={data.subword_alpha}: needs the probabilities of a unigram model, "
            f"and segmenter.kind={segmenter} has none; data.bpe_dropout is its way to sample"
        )
    if segmenter not in BPE and data.bpe_dropout:
        raise UserError(
            f"data.bpe_dropout={data.bpe_dropout}: leaves out merges, and segmenter.kind="
            f"{segmenter} has none; data.subword_alpha is its way to sample"
        )


def make_samplers(data: Data, sides: Sides) -> list[Sampler]:
    """The samplers of both sides; none if text keeps its prepared segmentation.

    Raises UserError for a segmenter that cannot sample as `data` asks.
    """
    samplers = list[Sampler]()
    for side in sides if data.bpe_dropout or data.subword_alpha is not None else ():
        segmenter, vocabulary = side.segmenter, side.vocabulary
        check_sampling(data, segmenter.kind)
        if isinstance(segmenter, Bpe):
            samplers.append(BpeDropout(segmenter, vocabulary, data.bpe_dropout))
            continue
        assert data.subword_alpha is not None, "see `check_sampling`"
        try:
            samplers.append(NBest(segmenter, vocabulary, data.subword_alpha, data.subword_nbest))
        except ValueError as error:
            which = SIDES[len(samplers)]
            raise UserError(f"data.subword_alpha={data.subword_alpha}: {which}: {error}") from None
    return samplers


class RandomSegmentation:
    """Segments lines at random: each by seed, epoch, its number in the file and side alone.

    A line that would have more than `max_length` pieces keeps its prepared ones; so do all lines of
    an example of several that would have more than `join_length`. Columns with an integer per word
    do not follow the pieces and are left out.
    """

    def __init__(
        self, samplers: Sequence[Sampler], seed: int, max_length: int, join_length: int
    ) -> None:
        self._samplers, self._seed = samplers, seed
        self._max_length, self._join_length = max_length, join_length

    def segment(self, pairs: Pairs, counts: NDArray[np.int64], epoch: int) -> Pairs:
        """Segment pairs, of which the examples have `counts` [example], one after the other."""
        rows = dict[str, list[list[int]]]()
        state = random.getstate()
        for number, side in enumerate(SIDES):
            ids, ends = pairs.ids[side].tolist(), pairs.offsets[side].tolist()
            prepared = [ids[start : end - 1] for start, end in pairwise(ends)]
            lines = zip(prepared, pairs.lines.tolist(), strict=True)
            drawn = [self._draw(number, line, epoch, at) for line, at in lines]
            rows[side] = []
            for end, count in zip(np.cumsum(counts).tolist(), counts.tolist(), strict=True):
                example = slice(end - count, end)
                fits = count == 1 or sum(map(len, drawn[example])) <= self._join_length
                rows[side] += [[*line, EOS] for line in (drawn if fits else prepared)[example]]
        random.setstate(state)
        per = {name: per for name, per in pairs.per.items() if per == "sentence"}
        columns = {name: pairs.columns[name] for name in per}
        dtype = pairs.ids["source"].dtype
        return Pairs.of_rows(pairs.lines, rows, dtype, per, columns, pairs.corpora, pairs.codes)

    def _draw(self, side: int, line: list[int], epoch: int, number: int) -> list[int]:
        random.seed(((self._seed << 32 | epoch) << 32 | number) << 1 | side)
        drawn = self._samplers[side].sample(line)
        return drawn if len(drawn) <= self._max_length else line


def measure_growth(store: Pairs, segmentation: RandomSegmentation) -> dict[str, float]:
    """By side: sampled pieces divided by prepared ones, measured on an even sample of lines."""
    rows = np.unique(np.linspace(0, len(store) - 1, SAMPLE).astype(np.int64))
    prepared = store.select(rows)
    drawn = segmentation.segment(prepared, np.ones(len(rows), np.int64), 0)
    return {s: float(drawn.lengths[s].sum() / max(1, prepared.lengths[s].sum())) for s in SIDES}
