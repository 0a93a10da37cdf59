"""The systems of a report in one order, best on the longest sources first."""

from dataclasses import dataclass

from nmt.compare.report import BucketScores, Metric, Report, ScoredTest

EXACT = "exact"  # the metric of exact matches


@dataclass(frozen=True)
class Ranking:
    """One test set of a report, and the order of its systems by the main metric."""

    report: Report
    test: ScoredTest

    @property
    def metric(self) -> Metric:
        """The metric that decides the order."""
        return self.test.metrics[0]

    @property
    def longest(self) -> BucketScores:
        """The bucket of the longest sources; all pairs, where there are no buckets."""
        rows = self.test.filled
        return rows[-2] if len(rows) > 1 else rows[-1]

    @property
    def order(self) -> list[int]:
        """Indices of the systems, best in the longest bucket first, then best on all pairs."""
        sign = -1 if self.metric.higher_is_better else 1

        def key(s: int) -> tuple[float, ...]:
            rows = (self.longest, self.test.rows[-1])
            return tuple(sign * row.cells[s].scores[self.metric.name].mean for row in rows)

        systems = range(len(self.report.systems))
        return sorted((s for s in systems if self.longest.cells[s].scores), key=key)
