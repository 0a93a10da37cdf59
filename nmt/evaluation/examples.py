"""Which test pairs are worth reading: where systems differ most, and where all are bad."""

from collections.abc import Sequence

import numpy as np

from nmt.evaluation.groups import ChosenLines
from nmt.evaluation.metrics import Lines
from nmt.evaluation.report import Example
from nmt.evaluation.significance import Floats

SENTENCE = "chrF2"  # scores single sentences: BLEU and TER say little of so few words
MOST_DIFFERENT, AMONG_WORST = "most different", "worst"
DIFFERENT, WORST = 20, 10  # examples shown


def choose_examples(
    sources: Lines,
    references: Lines,
    translations: Sequence[Lines],
    scores: Floats,
    buckets: Sequence[ChosenLines],
    lengths: Sequence[int],
) -> list[Example]:
    """Examples by the scores of single sentences [system, line], by turns from each bucket."""
    spread, mean = np.ptp(scores, axis=0), scores.mean(axis=0)
    groups = [
        [int(i) for i in chosen.lines if sources[i].strip() and references[i].strip()]
        for chosen in buckets
    ]
    differing = [[i for i in lines if spread[i] > 0] for lines in groups]
    different = round_robin(differing, (-spread).tolist(), DIFFERENT)
    remaining = [[i for i in lines if i not in different] for lines in groups]
    worst = round_robin(remaining, mean.tolist(), WORST)
    return [
        Example(
            line=i + 1,
            why=why,
            length=lengths[i],
            source=sources[i],
            reference=references[i],
            translations=[lines[i] for lines in translations],
            scores=scores[:, i].tolist(),
        )
        for why, chosen in ((MOST_DIFFERENT, different), (AMONG_WORST, worst))
        for i in chosen
    ]


def round_robin(groups: Sequence[Sequence[int]], keys: Sequence[float], most: int) -> list[int]:
    """Up to `most` places of smallest key, by turns from each group; sorted by key.

    Without turns, a long test set would show its longest (or shortest) sentences alone.
    """
    waiting = [sorted(lines, key=lambda i: (keys[i], i)) for lines in groups]
    places: list[int] = []
    while any(waiting) and len(places) < most:
        for lines in waiting:
            if lines and len(places) < most:
                places.append(lines.pop(0))
    return sorted(places, key=lambda i: (keys[i], i))
