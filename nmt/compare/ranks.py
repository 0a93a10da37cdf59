"""Ranks of systems by a score, how sure they are, and how alike two orders are."""

from collections.abc import Sequence

import numpy as np

from nmt.compare.significance import Floats, interval


def rank_intervals(samples: Sequence[Floats], higher_is_better: bool) -> list[tuple[int, int]]:
    """The best and the worst rank of each system, 95% interval, from its scores [samples].

    The same draw makes a sample of all systems. The rank of a system is 1, and 1 more for each
    that is better.
    """
    scores = np.stack(samples) * (1 if higher_is_better else -1)
    better = scores[None] > scores[:, None]  # [system, other, samples]
    ranks = 1.0 + better.sum(axis=1)
    ends = map(interval, ranks)
    return [(int(best), int(worst)) for best, worst in ends]


def spearman(first: Floats, second: Floats) -> Floats:
    """Spearman's rank correlation of the systems by two scores, for each sample: [samples].

    Both are [systems, samples]. Systems of one score share the mean of their ranks; NaN where all
    systems have one.
    """
    deviations = [ranks - ranks.mean(axis=0) for ranks in map(_ranks, (first, second))]
    squares = [(deviation**2).sum(axis=0) for deviation in deviations]
    with np.errstate(invalid="ignore"):
        return (deviations[0] * deviations[1]).sum(axis=0) / np.sqrt(squares[0] * squares[1])


def _ranks(scores: Floats) -> Floats:
    """Ranks of systems [systems, samples], the least score having 1."""
    above, same = scores[:, None] > scores[None], scores[:, None] == scores[None]
    return above.sum(axis=1) + (same.sum(axis=1) + 1) / 2
