"""Scores as a grid: buckets across, systems down; of one metric, or of several as in the paper."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nmt.compare.notation import EMPTY, STAR, beyond, count, interval, number, p_value, star
from nmt.compare.report import (
    BucketScores,
    PaperTable,
    PlaceScores,
    Report,
    Score,
    ScoredTest,
    rows_of,
)
from nmt.compare.text.columns import GAP, NamedLine, blocks, wrap

TIGHTER = ((" / ", GAP), (" / ", "  "), ("/", "  "))  # between metrics, and between columns


def paper_table(report: Report, table: PaperTable) -> str:
    """A table of the paper: its metrics in each cell, its numbers below ours."""
    test, rows = report.test(table.test), rows_of(report, table)
    unit = f"; {test.side} length in {test.unit}" if test.unit and table.buckets else ""
    what = f"{test.name}, {count(test.rows[-1].pairs)} pairs{unit}; {' / '.join(table.metrics)}"
    opening = wrap(f"{table.name}: {table.caption}") + "\n" + wrap(what)
    return "\n\n".join([opening, *grid(report, rows, table.systems, table.metrics)])


def test_grids(report: Report, test: ScoredTest) -> str:
    """A grid for each metric of a test."""
    unit = f"{test.side} length in {test.unit}" if test.unit else "no source, hence no lengths"
    parts = [wrap(f"{test.name}, {count(test.rows[-1].pairs)} pairs; {unit}")]
    for metric in test.metrics:
        systems = range(len(report.systems))
        first, *others = grid(report, test.filled, systems, [metric.name])
        parts += [f"{metric.name}  ({metric.title})\n{first}", *others]
    return "\n\n".join(parts)


def grid(
    report: Report, rows: Sequence[BucketScores], systems: Sequence[int], metrics: Sequence[str]
) -> list[str]:
    """The scores of systems, and below each what is known: interval, deviation, p, the paper's.

    One block where all buckets fit side by side, else several below each other.
    """
    lines = [line for s in systems for line in _lines(report, rows, s, metrics)]
    layouts = [blocks([*heading(rows), *_aligned(lines, slash)], gap) for slash, gap in TIGHTER]
    return next((tables for tables in layouts if len(tables) == 1), layouts[0])


def heading(rows: Sequence[BucketScores | PlaceScores]) -> list[NamedLine]:
    """The buckets or places, and how many pairs each has."""
    counts = [f"n = {count(row.pairs)}{' few' if row.few else ''}" for row in rows]
    return [NamedLine("", [row.name for row in rows]), NamedLine("", counts)]


class _ScoreLine(NamedTuple):
    """A line before it is aligned."""

    name: str
    numbers: list[list[str]]  # by column and metric, perhaps with a star
    marks: list[str]  # by column
    optional: bool = True
    aligned: bool = True  # False: one text a column, as it is


def _lines(
    report: Report, rows: Sequence[BucketScores], s: int, metrics: Sequence[str]
) -> list[_ScoreLine]:
    """A system's scores; below, where known: interval, p, deviation, the paper's, difference."""
    cells, system = [row.cells[s] for row in rows], report.systems[s]

    def line(name: str, written: Callable[[Score], str], *only: str) -> _ScoreLine:
        numbers = [
            [EMPTY if (e := cell.scores.get(m)) is None else written(e) for m in only or metrics]
            for cell in cells
        ]
        return _ScoreLine(name, numbers, [""] * len(cells), aligned=not only)

    scores = [cell.scores[m] for cell in cells for m in metrics if m in cell.scores]
    first, of_first = metrics[0], f" of {metrics[0]}" if len(metrics) > 1 else ""
    means = line(system.label, lambda score: number(score.mean) + star(score))
    lines = [means._replace(marks=[beyond(cell) for cell in cells], optional=False)]
    if any(first in cell.scores for cell in cells):
        lines.append(line(f"  95%{of_first}", interval, first))
    if any(cell.scores[first].p is not None for cell in cells if first in cell.scores):
        lines.append(line(f"  p{of_first}", lambda score: p_value(score.p), first))
    if any(score.deviation is not None for score in scores):
        lines.append(line(f"  ± {len(system.runs)} seeds", lambda score: number(score.deviation)))
    if any(score.published is not None for score in scores):
        lines.append(line("  paper", lambda score: number(score.published)))
        lines.append(line("  difference", _difference))
    return lines


def _difference(score: Score) -> str:
    if score.published is None:
        return EMPTY
    return f"{round(score.mean - score.published, 1) + 0.0:+.1f}"  # + 0.0: no "-0.0"


def _aligned(lines: Sequence[_ScoreLine], slash: str) -> list[NamedLine]:
    """`31.7* / 57.9^`: the decimal points of a column under each other."""
    cells = [numbers for line in lines if line.aligned for numbers in line.numbers]
    stars = any(STAR in text for numbers in cells for text in numbers)
    widths = [
        max(len(text.removesuffix(STAR)) for text in metric) for metric in zip(*cells, strict=True)
    ]

    def padded(text: str, width: int) -> str:
        mark = STAR if text.endswith(STAR) else " " if stars else ""
        return text.removesuffix(STAR).rjust(width) + mark

    def written(line: _ScoreLine) -> list[str]:
        if not line.aligned:
            return [text for (text,) in line.numbers]
        texts = [slash.join(map(padded, numbers, widths)) for numbers in line.numbers]
        return [text + mark for text, mark in zip(texts, line.marks, strict=True)]

    return [NamedLine(line.name, written(line), line.optional) for line in lines]
