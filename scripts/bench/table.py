"""Figures as plain text: what a part of the bench prints, and what it writes as JSON."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from scripts.bench.rounds import Measurement, spread

GIGA = 1e9
LEFT_OUT = "left out, as the time was over"
Columns = dict[str, Callable[[Measurement], str]]
"""Headings, and the cell below each for a candidate."""


class BenchPart(NamedTuple):
    """The table of one part, and its JSON."""

    name: str
    title: str
    columns: Sequence[str]  # between that of names and that of reasons
    rows: list[list[str]]
    notes: list[str]
    facts: dict[str, Any]  # for JSON: every round's figures

    def text(self) -> str:
        lines = [self.title, *align([["", *self.columns, ""], *self.rows])]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)]) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "notes": self.notes} | self.facts


def rows_of(columns: Columns, measured: Sequence[Measurement]) -> list[list[str]]:
    """A row for each candidate, with its name before and, where it failed, the reason behind."""
    return [[m.name, *(cell(m) for cell in columns.values()), m.failed or ""] for m in measured]


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell: the first one and the last to the left, else right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *inner, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(inner, widths[1:-1], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
    return lines


def figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def figure_of(name: str, form: str) -> Callable[[Measurement], str]:
    return lambda m: figure(m.figures[name], form)


def ranged(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """Median [least, most]."""
    return f"{form} [{form}, {form}]".format(*spread(values).values()) if values else "-"


def rates(m: Measurement) -> str:
    return ranged(m.rates)


def gigabytes(m: Measurement) -> str:
    return figure(m.memory and m.memory / GIGA, "{:.2f}")
