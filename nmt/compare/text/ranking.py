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
from nmt.compare.ranking import EXACT, Ranking
from nmt.compare.report import BucketScores, Report
from nmt.compare.text.columns import NamedLine, aligned_table, markdown_table, wrap
from nmt.compare.text.notes import notes_of


def ranking(report: Report) -> str:
    """A table for each test, then how to read them."""
    parts = []
    for test in report.tests:
        ranked = Ranking(report, test)
        lines = [NamedLine(name, cells) for name, *cells in _lines(ranked)]
        parts.append("\n".join([wrap(_opening(ranked)), "", *aligned_table(lines)]))
    return "\n\n".join([*parts, "\n".join(map(wrap, notes_of(report)))]) + "\n"


def markdown(report: Report) -> str:
    """The same for a page of documentation: what was typed and when, the tables, the notes."""
    parts = [f"{report.date}: `{report.command}`"]
    for test in report.tests:
        ranked = Ranking(report, test)
        parts += [_opening(ranked), markdown_table(_lines(ranked))]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes_of(report))]) + "\n"


def _opening(ranked: Ranking) -> str:
    """The sentence above a ranking: the test set, and the metric that sorts."""
    test = ranked.test
    pairs = ", ".join(
        f"{row.name}: {count(row.pairs)}{' few' if row.few else ''}" for row in test.filled
    )
    unit = f" {test.side.capitalize()} length in {test.unit}." if test.unit else ""
    return (
        f"{test.name}, sorted by {ranked.metric.name} of {ranked.longest.name}, best first.{unit} "
        f"Pairs: {pairs}."
    )


def _lines(ranked: Ranking) -> list[list[str]]:
    """The heading, and a line for each system, best first."""
    rows, longest, metric = ranked.test.filled, ranked.longest, ranked.metric.name
    systems = ranked.report.systems
    names = [known.name for known in ranked.test.metrics]
    exact = EXACT in names and metric != EXACT  # a column of its own where another has the buckets
    heading = ["system", f"rank {longest.name}", "of encodings", "parameters", "tokens/s"]
    heading += [f"{metric} {row.name}" for row in rows]
    heading += [f"p {longest.name}", *["exact match %"] * exact, f"length ratio {longest.name}"]
    lines = [heading]
    for s in ranked.order:
        system, score = systems[s], longest.cells[s].scores[metric]
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
