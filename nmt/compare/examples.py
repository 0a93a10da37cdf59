"""Which test pairs are worth reading: where systems differ most, and where all are bad."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nmt.compare.report import (
    AMONG_WORST,
    MOST_DIFFERENT,
    ExamplePair,
    ExampleTranslation,
    ScoredTest,
)
from nmt.compare.scores import Scorer
from nmt.compare.scoring import RunCounts, TranslatedTest, lines_of

SENTENCE = "chrF2"  # scores single sentences: BLEU and TER say little of so few words
DIFFERENT, WORST = 20, 10  # examples shown


def with_examples(
    scored: ScoredTest,
    test: TranslatedTest,
    scorer: Scorer,
    counts: Sequence[Sequence[RunCounts]],
) -> ScoredTest:
    """The scored test with examples, by the scores of single sentences of the first runs.

    `scorer` and `counts` (system, run) are those of SENTENCE.
    """
    assert test.sources is not None and test.lengths is not None, "examples show sources"
    scores = np.array(
        [[scorer.score(line) for line in runs[0][scorer.name]] for runs in counts]
    )  # [system, line]
    usable = {
        i
        for i, pair in enumerate(zip(test.sources, test.references, strict=True))
        if all(side.strip() for side in pair)
    }
    groups = {
        row.name: [int(i) for i in lines_of(row, test.lengths) if i in usable]
        for row in scored.buckets
    }
    bucket_of = {i: name for name, lines in groups.items() for i in lines}
    examples = [
        ExamplePair(
            line=i + 1,
            why=why,
            source=test.sources[i],
            reference=test.references[i],
            length=test.lengths[i],
            bucket=bucket_of[i],
            pieces=None,
            hypotheses=[
                ExampleTranslation(runs[0][i], float(scores[s, i]), None)
                for s, runs in enumerate(test.hypotheses)
            ],
        )
        for why, lines in _selected_lines(groups, scores).items()
        for i in lines
    ]
    return replace(scored, examples=examples)


def _selected_lines(
    groups: dict[str, list[int]], scores: NDArray[np.float64]
) -> dict[str, list[int]]:
    """Lines by why they are shown; `groups`: by bucket, `scores`: [system, line]."""
    spread, mean = np.ptp(scores, axis=0), scores.mean(axis=0)
    differing = {name: [i for i in lines if spread[i] > 0] for name, lines in groups.items()}
    different = round_robin(differing, (-spread).tolist(), DIFFERENT)
    remaining = {name: [i for i in lines if i not in different] for name, lines in groups.items()}
    return {MOST_DIFFERENT: different, AMONG_WORST: round_robin(remaining, mean.tolist(), WORST)}


def round_robin(groups: dict[str, list[int]], keys: Sequence[float], most: int) -> list[int]:
    """Up to `most` places of smallest key, by turns from each group; sorted by key.

    Without turns, a long test set would show its longest (or shortest) sentences alone.
    """
    waiting = [sorted(lines, key=lambda i: (keys[i], i)) for lines in groups.values()]
    places: list[int] = []
    while any(waiting) and len(places) < most:
        for lines in waiting:
            if lines and len(places) < most:
                places.append(lines.pop(0))
    return sorted(places, key=lambda i: (keys[i], i))
