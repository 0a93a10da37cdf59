"""A table in the paper's layout: buckets across, systems down, the paper's numbers below ours."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nmt.compare.notation import EMPTY, STAR, beyond, count, interval, number, star
from nmt.compare.report import BucketScores, PaperTable, Report, Score, rows_of
from nmt.compare.text.columns import GAP, NamedLine, blocks, wrapped

TIGHTER = ((" / ", GAP), (" / ", "  "), ("/", "  "))  # between metrics, and between columns


def paper_table(report: Report, table: PaperTable) -> str:
    """One table of the paper, and the intervals of its first metric below."""
    test, rows = report.test(table.test), rows_of(report, table)
    unit = f"; source lengths in {test.unit}" if test.unit and table.buckets else ""
    what = f"{test.name}, {test.rows[-1].pairs:,} pairs{unit}; {' / '.join(table.metrics)}"
    lines = [line for s in table.systems for line in _lines(report, table, rows, s)]
    fitting = (blocks([*heading(rows), *_aligned(lines, slash)], gap) for slash, gap in TIGHTER)
    whole = next((tables for tables in fitting if len(tables) == 1), None)
    whole = whole or blocks([*heading(rows), *_aligned(lines, " / ")])
    first = table.metrics[0]
    intervals = [
        NamedLine(
            report.systems[s].label, [interval(row.cells[s].scores.get(first)) for row in rows]
        )
        for s in table.systems
    ]
    opening = wrapped(f"{table.name}: {table.caption}") + "\n" + wrapped(what)
    below = f"95% intervals of {first}\n" + "\n\n".join(blocks([*heading(rows), *intervals]))
    return "\n\n".join([opening, *whole, below])


def heading(rows: Sequence[BucketScores]) -> list[NamedLine]:
    """The buckets, and how many pairs each has."""
    counts = [f"n = {count(row.pairs)}{' few' if row.few else ''}" for row in rows]
    return [NamedLine("", [row.name for row in rows]), NamedLine("", counts)]


class _ScoreLine(NamedTuple):
    """A line before it is aligned."""

    name: str
    numbers: list[list[str]]  # by column and metric, perhaps with a star
    marks: list[str]  # by column
    optional: bool = True


def _lines(
    report: Report, table: PaperTable, rows: Sequence[BucketScores], s: int
) -> list[_ScoreLine]:
    """A system's scores; below, where known, deviation, the paper's scores and the difference."""
    cells, system = [row.cells[s] for row in rows], report.systems[s]

    def line(name: str, written: Callable[[Score], str]) -> _ScoreLine:
        numbers = [
            [EMPTY if (e := cell.scores.get(m)) is None else written(e) for m in table.metrics]
            for cell in cells
        ]
        return _ScoreLine(name, numbers, [""] * len(cells))

    scores = [cell.scores[m] for cell in cells for m in table.metrics if m in cell.scores]
    means = line(system.label, lambda score: number(score.mean) + star(score))
    lines = [means._replace(marks=[beyond(cell) for cell in cells], optional=False)]
    if any(score.deviation is not None for score in scores):
        lines.append(line(f"  ± {len(system.runs)} seeds", lambda score: number(score.deviation)))
    if table.published and any(score.published is not None for score in scores):
        lines.append(line("  paper", lambda score: number(score.published)))
        lines.append(line("  difference", _difference))
    return lines


def _difference(score: Score) -> str:
    if score.published is None:
        return EMPTY
    return f"{round(score.mean - score.published, 1) + 0.0:+.1f}"  # + 0.0: no "-0.0"


def _aligned(lines: Sequence[_ScoreLine], slash: str) -> list[NamedLine]:
    """`31.7* / 57.9^`: the decimal points of a column under each other."""
    cells = [numbers for line in lines for numbers in line.numbers]
    stars = any(STAR in text for numbers in cells for text in numbers)
    widths = [
        max(len(text.removesuffix(STAR)) for text in metric) for metric in zip(*cells, strict=True)
    ]

    def padded(text: str, width: int) -> str:
        mark = STAR if text.endswith(STAR) else " " if stars else ""
        return text.removesuffix(STAR).rjust(width) + mark

    return [
        NamedLine(
            line.name,
            [
                slash.join(map(padded, numbers, widths)) + mark
                for numbers, mark in zip(line.numbers, line.marks, strict=True)
            ],
            line.optional,
        )
        for line in lines
    ]
