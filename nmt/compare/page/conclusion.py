"""What the numbers of a test say, and no more than they say; summary.html puts it into words."""

from typing import NamedTuple

from nmt.compare.report import ALL, BucketScores, Score, ScoredTest


class Conclusion(NamedTuple):
    """Who is best in the bucket that matters most, and how far that can be trusted."""

    row: BucketScores
    beyond: list[int]  # systems whose training had no source as long as those of the bucket
    scores: dict[int, Score]  # by system, of those that have one
    best: int
    near: list[int]  # others, but for the baseline, whose intervals overlap that of the best


def conclude(test: ScoredTest) -> Conclusion | None:
    """The longest bucket beyond the trained lengths that has enough pairs; else all pairs.

    Beyond the lengths of all systems, or where there is no such bucket, of some. None where
    nothing was scored at all.
    """
    metric = test.metrics[0]
    rows = [(row, _scored(row, metric.name)) for row in test.rows]
    rows = [(row, scores) for row, scores in rows if scores]
    if not rows:
        return None
    row, scores = rows[-1]  # all pairs
    for enough in (all, any):
        far = [
            (bucket, known)
            for bucket, known in rows
            if bucket.name != ALL and enough(bucket.cells[s].beyond for s in known)
        ]
        if far:
            row, scores = next((r for r in reversed(far) if not r[0].few), far[-1])
            break
    sign = 1 if metric.higher_is_better else -1
    best = max(scores, key=lambda s: sign * scores[s].mean)
    return Conclusion(
        row=row,
        beyond=[s for s in scores if row.cells[s].beyond],
        scores=scores,
        best=best,
        near=[s for s in scores if s not in (0, best) and overlap(scores[s], scores[best])],
    )


def _scored(row: BucketScores, metric: str) -> dict[int, Score]:
    return {s: cell.scores[metric] for s, cell in enumerate(row.cells) if metric in cell.scores}


def overlap(a: Score, b: Score) -> bool:
    """Whether two intervals have a value in common."""
    return a.low <= b.high and b.low <= a.high


def every_seed_better(a: Score, b: Score, higher_is_better: bool) -> bool:
    """Whether every seed of `a` is better than every seed of `b`."""
    return min(a.seeds) > max(b.seeds) if higher_is_better else max(a.seeds) < min(b.seeds)
