"""Which test pairs are worth reading: where systems differ most, and where all are bad."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt.evaluation.report import TranslatedTest
from nmt.evaluation.significance import Floats

SENTENCE = "chrF2"  # scores single sentences: BLEU and TER say little of so few words
DIFFERENT, WORST = 20, 10  # examples shown


def choose_examples(
    test: TranslatedTest, scores: Floats, buckets: Sequence[Sequence[int]]
) -> list[dict[str, Any]]:
    """Lines with all translations, of the first runs, by the scores of sentences [system, line].

    By turns from each bucket of lines.
    """
    sources, lengths = test.sources or [], test.lengths or []
    spread, mean = np.ptp(scores, axis=0), scores.mean(axis=0)
    groups = [
        [int(i) for i in lines if sources[i].strip() and test.references[i].strip()]
        for lines in buckets
    ]
    differing = [[i for i in lines if spread[i] > 0] for lines in groups]
    different = round_robin(differing, (-spread).tolist(), DIFFERENT)
    remaining = [[i for i in lines if i not in different] for lines in groups]
    worst = round_robin(remaining, mean.tolist(), WORST)
    return [
        {
            "line": i + 1,
            "why": why,
            "length": lengths[i],
            "source": sources[i],
            "reference": test.references[i],
            "translations": [runs[0][i] for runs in test.hypotheses],
            "scores": scores[:, i].tolist(),
        }
        for why, chosen in (("most different", different), ("worst", worst))
        for i in chosen
    ]


def round_robin(groups: Sequence[Sequence[int]], keys: Sequence[float], most: int) -> list[int]:
    """Up to `most` lines of smallest key, by turns from each group; sorted by key.

    Without turns, a long test set would show its longest (or shortest) sentences alone.
    """
    waiting = [sorted(lines, key=lambda i: (keys[i], i)) for lines in groups]
    chosen: list[int] = []
    while any(waiting) and len(chosen) < most:
        for lines in waiting:
            if lines and len(chosen) < most:
                chosen.append(lines.pop(0))
    return sorted(chosen, key=lambda i: (keys[i], i))
