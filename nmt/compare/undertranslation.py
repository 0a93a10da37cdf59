"""Signs of under-translation that the texts alone show."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from nmt.compare.arrival import arrived, distinctive_ngrams, ngrams, pooled_shares
from nmt.compare.report import FEW, PartShares, PlaceScores, ScoredTest, UnderTranslation
from nmt.compare.scoring import (
    Bootstrap,
    JoinedParts,
    TranslatedTest,
    by_run,
    lines_of,
    mean_of_known,
)

ORDERS = range(1, 7)
"""Character n-grams that tell whether a part was left out: those of chrF (Popović 2015).

Single lines are judged, for which 6-grams alone are too few: of the poor translations below they
take twice as many whole halves for cut ones.
"""
LEFT_OUT = 1 / 3
"""Recall of the second half, over that of the first, below which it was left out.

Tried on 318 pairs of English sentences of at least 8 words (the test part of man-de-en), with
translations made of the references: 40 % of the words lost or replaced by others, a fifth of the
neighbours swapped, which leaves a recall of 0.38 and so is as good as a usual translation. Where
the second half was cut off, 97.5 % were found; of the whole ones 1.9 % were taken for cut ones
(1/2: 98.1 % and 9.1 %). With 75 % of the words wrong, 73 % and 9 %.
"""


def repetition(lines: Sequence[str]) -> float | None:
    """Of all 4-grams of white-space words, the share that stood earlier in the same line.

    The second time counts, and each further one. A model that has lost its place says things
    again; the same share of the references tells how much of it is the way of the text. None
    where no line has four words.
    """
    counts = [repeats_of(line) for line in lines]
    total = sum(grams for _, grams in counts)
    return sum(repeats for repeats, _ in counts) / total if total else None


def repeats_of(line: str) -> tuple[int, int]:
    """How many 4-grams of white-space words stood earlier in a line, and how many it has."""
    words = line.split()
    grams = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
    return len(grams) - len(set(grams)), len(grams)


def dropped_halves(hypotheses: Sequence[str], parts: JoinedParts) -> list[bool | None]:
    """Whether the second half of each joined line was left untranslated, judged by characters.

    Of k reference sentences, the last k // 2 are the second half; see `parts_left_out`. None for
    lines of a single part, and where a half has no n-gram that the other has not. Raises ValueError
    unless there are as many parts as lines.
    """
    dropped = []
    for hypothesis, (_, references) in zip(hypotheses, parts, strict=True):
        middle = len(references) - len(references) // 2
        halves = [" ".join(half) for half in (references[:middle], references[middle:])]
        first, second = parts_left_out(hypothesis, halves)
        dropped.append(None if first is None else second)
    return dropped


def parts_left_out(hypothesis: str, references: Sequence[str]) -> list[bool | None]:
    """Whether each part of a joined line was left untranslated.

    The recall of a part is the share of its character n-grams (orders 1 to 6, those that no other
    part has, all together) that stands in the hypothesis. The part was left out if none does, or if
    its recall is below a third (LEFT_OUT) of that of the line's best part. Where in the hypothesis
    something stands plays no part. None where a part has no such n-gram.
    """
    output = ngrams(hypothesis, ORDERS)
    recalls = [
        arrived(grams, output) / grams.total() if grams else None
        for grams in distinctive_ngrams(references, ORDERS)
    ]
    best = max((recall for recall in recalls if recall is not None), default=0.0)
    return [
        None if recall is None else not recall or recall < LEFT_OUT * best for recall in recalls
    ]


class PartCounts(NamedTuple):
    """6-grams of one part of a joined line, of those that no other part has; in a translation."""

    arrived: int
    expected: int  # in the part's reference
    surplus: int  # times that the translation has one of them more often than the reference
    left_out: bool | None  # None: that cannot be told


def part_counts(hypotheses: Sequence[str], parts: JoinedParts) -> list[list[PartCounts]]:
    """What arrived of each part of each joined line."""
    return [
        _part_counts(hypothesis, references)
        for hypothesis, (_, references) in zip(hypotheses, parts, strict=True)
    ]


def _part_counts(hypothesis: str, references: Sequence[str]) -> list[PartCounts]:
    output, left_out = ngrams(hypothesis), parts_left_out(hypothesis, references)
    counts = []
    for part, expected in enumerate(distinctive_ngrams(references)):
        surplus = sum(max(0, output[gram] - count) for gram, count in expected.items())
        matched = arrived(expected, output)
        counts.append(PartCounts(matched, expected.total(), surplus, left_out[part]))
    return counts


def by_place(test: TranslatedTest, bootstrap: Bootstrap) -> list[PlaceScores]:
    """What arrived of each part of joined lines, by number of parts and place among them."""
    if test.parts is None:
        return []
    counts = by_run(partial(part_counts, parts=test.parts), test.hypotheses, bootstrap.jobs)
    sizes = [len(references) for _, references in test.parts]
    places = []
    for size in sorted(set(sizes) - {0, 1}):
        lines = [i for i, parts in enumerate(sizes) if parts == size]
        for place in range(size):
            systems = [[[run[i][place] for i in lines] for run in runs] for runs in counts]
            few = len(lines) < FEW
            cells = _part_shares(systems, bootstrap)
            places.append(PlaceScores(size, place + 1, len(lines), few, cells))
    return places


def _part_shares(
    systems: Sequence[Sequence[Sequence[PartCounts]]], bootstrap: Bootstrap
) -> list[PartShares]:
    """The shares of one part by each system: lines pooled, means over runs."""
    counts = [
        [np.array([part[:3] for part in run], dtype=np.float64) for run in runs] for runs in systems
    ]
    shares = pooled_shares(
        [[run[:, :2] for run in runs] for runs in counts], bootstrap.samples, bootstrap.seed
    )
    cells = []
    for runs, of_system, share in zip(systems, counts, shares, strict=True):
        omitted = mean_of_known(mean_of_known(part.left_out for part in run) for run in runs)
        _, expected, surplus = sum((run.sum(axis=0) for run in of_system), start=np.zeros(3))
        cells.append(PartShares(share, omitted, float(surplus / expected) if expected else None))
    return cells


def with_signs(scored: ScoredTest, test: TranslatedTest, bootstrap: Bootstrap) -> ScoredTest:
    """The scored test with what can be told of under-translation from the texts alone."""
    unknown: list[bool | None] = [None] * len(test.references)
    dropped = [[unknown for _ in runs] for runs in test.hypotheses]
    if test.parts is not None:
        dropping = partial(dropped_halves, parts=test.parts)
        dropped = by_run(dropping, test.hypotheses, bootstrap.jobs)
    rows = []
    for row in scored.rows:
        lines = lines_of(row, test.lengths or [0] * len(test.references))
        references = repetition([test.references[i] for i in lines])
        cells = []
        for cell, runs, halves in zip(row.cells, test.hypotheses, dropped, strict=True):
            signs = UnderTranslation(
                repeated=mean_of_known(repetition([run[i] for i in lines]) for run in runs),
                repeated_reference=references,
                unattended=None,
                dropped_half=mean_of_known(mean_of_known(run[i] for i in lines) for run in halves),
            )
            cells.append(replace(cell, signs=signs if row.pairs else None))
        rows.append(replace(row, cells=cells))
    return replace(scored, rows=rows, places=by_place(test, bootstrap))
