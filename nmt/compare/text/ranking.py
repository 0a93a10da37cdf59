"""A ranking as a table for a terminal, and as Markdown for a page of documentation."""

from collections.abc import Sequence

from nmt.compare.notation import (
    EMPTY,
    beyond,
    count,
    deviating,
    interval,
    number,
    p_value,
    ranks,
    star,
)
from nmt.compare.report import BucketScores, Report, ScoredTest
from nmt.compare.scores import EXACT
from nmt.compare.text.columns import NamedLine, aligned_table, markdown_table, wrap
from nmt.compare.text.notes import notes_of


def ranking(report: Report) -> str:
    """A table for each test, then how to read them."""
    parts = []
    for test in report.tests:
        lines = [NamedLine(name, cells) for name, *cells in _lines(report, test)]
        parts.append("\n".join([wrap(_opening(test)), "", *aligned_table(lines)]))
    return "\n\n".join([*parts, "\n".join(map(wrap, notes_of(report)))]) + "\n"


def markdown(report: Report) -> str:
    """The same for a page of documentation: what was typed and when, the tables, the notes."""
    parts = [f"{report.date}: `{report.command}`"]
    for test in report.tests:
        parts += [_opening(test), markdown_table(_lines(report, test))]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes_of(report))]) + "\n"


def longest_of(test: ScoredTest) -> BucketScores:
    """The bucket of the longest sources; all pairs, where there are no buckets."""
    rows = test.filled
    return rows[-2] if len(rows) > 1 else rows[-1]


def order_of(test: ScoredTest) -> list[int]:
    """Systems by the main metric, best in the longest bucket first, then best on all pairs."""
    metric, rows = test.metrics[0], (longest_of(test), test.rows[-1])
    sign = -1 if metric.higher_is_better else 1
    scored = [s for s, cell in enumerate(rows[0].cells) if cell.scores]
    return sorted(scored, key=lambda s: [sign * r.cells[s].scores[metric.name].mean for r in rows])


def _opening(test: ScoredTest) -> str:
    """The sentence above a ranking: the test set, and the metric that sorts."""
    pairs = ", ".join(
        f"{row.name}: {count(row.pairs)}{' few' if row.few else ''}" for row in test.filled
    )
    unit = f" {test.side.capitalize()} length in {test.unit}." if test.unit else ""
    return (
        f"{test.name}, sorted by {test.metrics[0].name} of {longest_of(test).name}, best first."
        f"{unit} Pairs: {pairs}."
    )


def _lines(report: Report, test: ScoredTest) -> list[list[str]]:
    """The heading, and a line for each system, best first."""
    rows, longest, names = test.filled, longest_of(test), [known.name for known in test.metrics]
    metric = names[0]
    exact = EXACT in names and metric != EXACT  # a column of its own where another has the buckets
    heading = ["system", f"rank {longest.name}", "of encodings", "parameters", "tokens/s"]
    heading += [f"{metric} {row.name}" for row in rows]
    heading += [f"p {longest.name}", *["exact match % all"] * exact, f"length ratio {longest.name}"]
    lines = [heading]
    for s in order_of(test):
        system, score = report.systems[s], longest.cells[s].scores[metric]
        line = [system.label, ranks(score), count(system.encoding_parameters)]
        line += [count(system.parameters), count(system.tokens_per_second)]
        line += [_score(row, s, metric) for row in rows]
        line.append(p_value(score.p))
        line += [number(rows[-1].cells[s].scores[EXACT].mean)] if exact else []
        line.append(number(longest.cells[s].ratio, 2))
        lines.append(line)
    return _without_unknown(lines)


def _score(row: BucketScores, s: int, metric: str) -> str:
    cell = row.cells[s]
    score = cell.scores[metric]
    mean = deviating(score.mean, score.deviation)
    return f"{mean} {interval(score)}{star(score)}{beyond(cell)}"


def _without_unknown(lines: Sequence[list[str]]) -> list[list[str]]:
    """The lines without columns of which no system knows anything."""
    columns = [
        column for column in zip(*lines, strict=True) if any(cell != EMPTY for cell in column[1:])
    ]
    return [list(line) for line in zip(*columns, strict=True)]
