"""Many systems in one order, best on the longest sources first."""

from dataclasses import asdict, dataclass, field
from typing import Any

from nmt.compare.report import ALL, FORMAT, BucketScores, Report, ScoredTest

EXACT = "exact"  # the metric of exact matches


@dataclass(frozen=True)
class MissingSystem:
    """A system that is not in the table, and why."""

    label: str
    why: str
    log: str | None  # None: it was never started


@dataclass(frozen=True)
class Ranking:
    """A report of many systems, of one run each, on one test set, and their order."""

    report: Report
    metric: str  # one of the test's; decides the order
    missing: list[MissingSystem] = field(default_factory=list)

    @property
    def test(self) -> ScoredTest:
        """The test set."""
        (test,) = self.report.tests
        return test

    @property
    def rows(self) -> list[BucketScores]:
        """The buckets that hold pairs, then all pairs."""
        return [row for row in self.test.rows if row.pairs or row.name == ALL]

    @property
    def longest(self) -> BucketScores:
        """The bucket of the longest sources; all pairs, where there are no buckets."""
        rows = self.rows
        return rows[-2] if len(rows) > 1 else rows[-1]

    @property
    def higher_is_better(self) -> bool:
        """Whether more of the metric is better."""
        return self.test.metric(self.metric).higher_is_better

    @property
    def order(self) -> list[int]:
        """Indices of the systems, best in the longest bucket first, then best on all pairs."""
        sign = -1 if self.higher_is_better else 1

        def key(s: int) -> tuple[float, ...]:
            rows = (self.longest, self.rows[-1])
            return tuple(sign * row.cells[s].scores[self.metric].mean for row in rows)

        return sorted(range(len(self.report.systems)), key=key)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; `order` has the labels as the table is sorted."""
        return {
            "format": FORMAT,
            "metric": self.metric,
            "order": [self.report.systems[s].label for s in self.order],
            "missing": [asdict(missing) for missing in self.missing],
            "report": self.report.to_json(),
        }
