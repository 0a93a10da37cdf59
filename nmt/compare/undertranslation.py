"""Signs of under-translation that the texts alone show."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from nmt.compare.report import BucketScores, ScoredTest, UnderTranslation
from nmt.compare.scoring import (
    JOBS,
    JoinedParts,
    TranslatedTest,
    lines_of,
    mean_of_known,
    process_count,
)
from nmt.machine.pool import executor, in_order

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
    first, second = (_ngrams(" ".join(half)) for half in (references[:middle], references[middle:]))
    output = _ngrams(hypothesis)
    recalls = _recall(first, second, output), _recall(second, first, output)
    if recalls[0] is None or recalls[1] is None:
        return None
    return not output or recalls[1] < LEFT_OUT * recalls[0]


def _ngrams(text: str) -> Counter[str]:
    """Character n-grams, counted, without white space."""
    letters = "".join(text.split())
    return Counter(letters[i : i + n] for n in ORDERS for i in range(len(letters) - n + 1))


def _recall(half: Counter[str], other: Counter[str], output: Counter[str]) -> float | None:
    """The share of a half's own n-grams that the output has; None where it has none."""
    only = {gram: count for gram, count in half.items() if gram not in other}
    total = sum(only.values())
    return sum(min(count, output[gram]) for gram, count in only.items()) / total if total else None


def with_signs(scored: ScoredTest, test: TranslatedTest, jobs: int) -> ScoredTest:
    """The scored test with what can be told of under-translation from the texts alone."""
    dropped = _dropped_halves(test, jobs)
    return replace(scored, rows=[_with_signs(row, test, dropped) for row in scored.rows])


def _dropped_halves(test: TranslatedTest, jobs: int) -> list[list[list[bool | None]]]:
    """Of each line (system, run -> lines), whether its second half was dropped."""
    if test.parts is None:
        unknown: list[bool | None] = [None] * len(test.references)
        return [[unknown for _ in runs] for runs in test.hypotheses]
    all_runs = [run for runs in test.hypotheses for run in runs]
    with executor(process_count(len(all_runs), len(test.references), jobs), *JOBS) as pool:
        dropped = in_order(pool, partial(dropped_halves, parts=test.parts), all_runs)
        return [[next(dropped) for _ in runs] for runs in test.hypotheses]


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
