"""Who is best where it matters most; conclusion.html puts it into words."""

from collections.abc import Iterable
from typing import NamedTuple

from nmt.compare.page.text import fixed
from nmt.compare.report import ALL, BucketScores, Metric, Report, Score, ScoredTest


class Conclusion(NamedTuple):
    """Who is best in the bucket that matters most."""

    row: BucketScores
    metric: Metric
    beyond: list[int]  # systems whose training had nothing as long as the bucket
    scores: dict[int, Score]  # by system, of those that have one
    best: list[int]  # several if their means look equal


def conclude(report: Report, test: ScoredTest) -> Conclusion | None:
    """The longest bucket beyond the trained lengths that has enough pairs; else all pairs.

    Beyond the lengths of all systems, or where there is no such bucket, of some; by the first
    metric that is shown of the test. None where nothing was scored at all.
    """
    main = next((table.metrics[0] for table in report.tables if table.test == test.name), None)
    metric = test.metric(main) if main else test.metrics[0]
    rows = [(row, _scored(row, metric.name)) for row in test.rows]
    rows = [(row, scores) for row, scores in rows if scores]
    if not rows:
        return None
    row, scores = rows[-1]  # all pairs
    for enough in (all, any):
        unseen = [
            (bucket, known)
            for bucket, known in rows
            if bucket.name != ALL and enough(bucket.cells[s].beyond for s in known)
        ]
        if unseen:
            row, scores = next((r for r in reversed(unseen) if not r[0].few), unseen[-1])
            break
    shown = best_of(test, row, scores, metric.name)
    best = [s for s in scores if shown in (None, fixed(scores[s].mean))]
    return Conclusion(row, metric, [s for s in scores if row.cells[s].beyond], scores, best)


def best_of(test: ScoredTest, row: BucketScores, systems: Iterable[int], metric: str) -> str | None:
    """The best mean as it is shown, so that what looks equal is marked alike."""
    means = [row.cells[s].scores[metric].mean for s in systems if metric in row.cells[s].scores]
    if len(means) < 2:
        return None
    return fixed(max(means) if test.metric(metric).higher_is_better else min(means))


def _scored(row: BucketScores, metric: str) -> dict[int, Score]:
    return {s: cell.scores[metric] for s, cell in enumerate(row.cells) if metric in cell.scores}
