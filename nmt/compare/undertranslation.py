"""Signs of under-translation that the texts alone show."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from nmt.compare.report import (
    FEW,
    BucketScores,
    PartShares,
    PlaceScores,
    ScoredTest,
    Share,
    UnderTranslation,
)
from nmt.compare.scoring import (
    JOBS,
    Bootstrap,
    JoinedParts,
    TranslatedTest,
    lines_of,
    mean_of_known,
    process_count,
)
from nmt.compare.significance import interval, resampled
from nmt.machine.pool import executor, in_order

T = TypeVar("T")

ORDERS = range(1, 7)  # of character n-grams, those of chrF (Popović 2015)

LEFT_OUT = 1 / 3
"""Recall of the second half, over that of the first, below which it was left out.

Tried on 318 pairs of English sentences of at least 8 words (the test part of man-de-en), with
translations made of the references: 40 % of the words lost or replaced by others, a fifth of the
neighbours swapped, which leaves a recall of 0.38 and so is as good as a usual translation. Where
the second half was cut off, 97.5 % were found; of the whole ones 1.9 % were taken for cut ones
(1/2: 98.1 % and 9.1 %). With 75 % of the words wrong, 73 % and 9 %.
"""


def repetition(lines: Sequence[str], n: int = 4) -> float | None:
    """Of all n-grams of white-space words, the share that stood earlier in the same line.

    The second time counts, and each further one. A model that has lost its place says things
    again; the same share of the references tells how much of it is the way of the text. None
    where no line has n words. Raises ValueError for n below 1.
    """
    if n < 1:
        raise ValueError(f"n={n}: must be at least 1")
    repeats = total = 0
    for line in lines:
        words = line.split()
        grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        repeats += len(grams) - len(set(grams))
        total += len(grams)
    return repeats / total if total else None


def dropped_halves(hypotheses: Sequence[str], parts: JoinedParts) -> list[bool | None]:
    """Whether the second half of each joined line was left untranslated, judged by characters.

    Of k reference sentences, the last k // 2 are the second half. A half's own n-grams are its
    character n-grams of orders 1 to 6, white space left out, that the other half does not have;
    its recall is the share of them, all orders together, that stands in the hypothesis (each as
    often at most as there). The second half was left out if its recall is below a third
    (LEFT_OUT) of the first half's, or if the hypothesis is empty. Where in the hypothesis
    something stands plays no part, and what both halves share proves nothing for either.

    None for lines of a single part, and where a half has no n-gram of its own. Raises ValueError
    unless there are as many parts as lines.
    """
    return [
        _second_half_missing(hypothesis, references)
        for hypothesis, (_, references) in zip(hypotheses, parts, strict=True)
    ]


def _second_half_missing(hypothesis: str, references: Sequence[str]) -> bool | None:
    """Whether the second half is missing; None where that cannot be told."""
    middle = len(references) - len(references) // 2
    halves = [" ".join(half) for half in (references[:middle], references[middle:])]
    first, second = _counts(hypothesis, halves)
    return None if first.omitted is None else second.omitted


def ngrams(text: str, orders: Iterable[int] = ORDERS) -> Counter[str]:
    """Character n-grams, counted, without white space."""
    letters = "".join(text.split())
    return Counter(letters[i : i + n] for n in orders for i in range(len(letters) - n + 1))


def own_ngrams(parts: Sequence[str], orders: Iterable[int] = ORDERS) -> list[Counter[str]]:
    """The n-grams of each part that no other part has, counted."""
    counted = [ngrams(part, orders) for part in parts]
    having = Counter(gram for grams in counted for gram in grams)
    return [
        Counter({gram: n for gram, n in grams.items() if having[gram] == 1}) for grams in counted
    ]


def arrived(own: Counter[str], output: Counter[str]) -> int:
    """How many of these n-grams an output has, each as often at most as it is here."""
    return sum(min(count, output[gram]) for gram, count in own.items())


class PartCounts(NamedTuple):
    """One part of a joined line in a translation of the line."""

    own: int  # n-grams of its reference that no other part has
    arrived: int  # of these
    surplus: int  # times that the translation has one of them more often than the reference
    omitted: bool | None  # None: that cannot be told


def part_counts(hypotheses: Sequence[str], parts: JoinedParts) -> list[list[PartCounts]]:
    """What of each part of each joined line arrived, judged by its own character n-grams.

    Those are as in `dropped_halves`. A part was omitted if the share of them that arrived is below
    a third (LEFT_OUT) of that of the line's best part, or if the hypothesis is empty; that cannot
    be told of a part without n-grams of its own.
    """
    return [
        _counts(hypothesis, references)
        for hypothesis, (_, references) in zip(hypotheses, parts, strict=True)
    ]


def _counts(hypothesis: str, references: Sequence[str]) -> list[PartCounts]:
    """What of each part of a line arrived."""
    output, own = ngrams(hypothesis), own_ngrams(references)
    arrivals = [arrived(part, output) for part in own]
    recalls = [n / part.total() if part else None for n, part in zip(arrivals, own, strict=True)]
    best = max((recall for recall in recalls if recall is not None), default=0.0)
    return [
        PartCounts(
            part.total(),
            n,
            sum(max(0, output[gram] - count) for gram, count in part.items()),
            None if recall is None else not output or recall < LEFT_OUT * best,
        )
        for part, n, recall in zip(own, arrivals, recalls, strict=True)
    ]


def by_place(test: TranslatedTest, bootstrap: Bootstrap) -> list[PlaceScores]:
    """What arrived of each part of joined lines, by number of parts and place among them."""
    if test.parts is None:
        return []
    counts = _by_run(part_counts, test, bootstrap.jobs)
    sizes = [len(references) for _, references in test.parts]
    places = []
    for size in sorted(set(sizes) - {0, 1}):
        lines = [i for i, parts in enumerate(sizes) if parts == size]
        for place in range(size):
            cells = [
                _part_shares([[run[i][place] for i in lines] for run in runs], bootstrap)
                for runs in counts
            ]
            few = len(lines) < FEW
            places.append(PlaceScores(size, place + 1, len(lines), few, cells))
    return places


def _part_shares(runs: Sequence[Sequence[PartCounts]], bootstrap: Bootstrap) -> PartShares:
    """The shares of one part: lines pooled, means over runs."""
    if not runs:
        return PartShares(None, None, None)
    table = np.array([[part[:3] for part in run] for run in runs], dtype=np.float64).mean(axis=0)
    omitted = mean_of_known(mean_of_known(part.omitted for part in run) for run in runs)
    own, found, surplus = table.sum(axis=0)  # over the lines
    if not own:
        return PartShares(None, omitted, None)
    drawn = resampled(table, bootstrap.samples, bootstrap.seed)
    bounds = interval(drawn[:, 1] / np.maximum(drawn[:, 0], 1))
    return PartShares(Share(found / own, *bounds), omitted, surplus / own)


def with_signs(scored: ScoredTest, test: TranslatedTest, bootstrap: Bootstrap) -> ScoredTest:
    """The scored test with what can be told of under-translation from the texts alone."""
    unknown: list[bool | None] = [None] * len(test.references)
    dropped = [[unknown for _ in runs] for runs in test.hypotheses]
    if test.parts is not None:
        dropped = _by_run(dropped_halves, test, bootstrap.jobs)
    rows = [_with_signs(row, test, dropped) for row in scored.rows]
    return replace(scored, rows=rows, places=by_place(test, bootstrap))


def _by_run(
    function: Callable[..., list[T]], test: TranslatedTest, jobs: int
) -> list[list[list[T]]]:
    """The function of the joined lines of each run (system, run -> line), in several processes."""
    assert test.parts is not None, "lines were joined"
    all_runs = [run for runs in test.hypotheses for run in runs]
    with executor(process_count(len(all_runs), len(test.references), jobs), *JOBS) as pool:
        found = in_order(pool, partial(function, parts=test.parts), all_runs)
        return [[next(found) for _ in runs] for runs in test.hypotheses]


def _with_signs(
    row: BucketScores, test: TranslatedTest, dropped: list[list[list[bool | None]]]
) -> BucketScores:
    lines = lines_of(row, test.lengths or [0] * len(test.references))
    if not len(lines):
        return row
    references = repetition([test.references[i] for i in lines])
    cells = []
    for cell, runs, halves in zip(row.cells, test.hypotheses, dropped, strict=True):
        signs = UnderTranslation(
            repeated=mean_of_known(repetition([run[i] for i in lines]) for run in runs),
            repeated_reference=references,
            unattended=None,
            dropped_half=mean_of_known(mean_of_known(run[i] for i in lines) for run in halves),
        )
        cells.append(replace(cell, signs=signs))
    return replace(row, cells=cells)
