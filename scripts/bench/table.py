"""Figures as plain text: what a part of the bench prints, and what it writes as JSON."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from scripts.bench.rounds import Candidate, spread

LEFT_OUT = "left out, as the time was over"
Columns = dict[str, Callable[[Candidate], str]]
"""Headings, and the cell below each for a candidate."""


class BenchPart(NamedTuple):
    """The table of one part, and its JSON."""

    name: str
    title: str
    columns: Sequence[str]  # between the names and the reasons of failure
    rows: list[list[str]]
    notes: list[str]
    facts: dict[str, Any]  # for JSON: every round's figures

    def text(self) -> str:
        """The table, its first and last column to the left, the others to the right."""
        rows = [["", *self.columns, ""], *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [self.title]
        for first, *inner, last in rows:
            cells = [cell.rjust(width) for cell, width in zip(inner, widths[1:-1], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells, last]).rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)]) + "\n"

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "notes": self.notes} | self.facts


def rows_of(columns: Columns, candidates: Sequence[Candidate]) -> list[list[str]]:
    """A row for each candidate: its name, its cells and, if it failed, the reason."""
    return [[c.name, *(cell(c) for cell in columns.values()), c.failed or ""] for c in candidates]


def figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def figure_of(name: str, form: str) -> Callable[[Candidate], str]:
    return lambda c: figure(c.figures[name], form)


def rates(c: Candidate) -> str:
    """Median [least, most]."""
    return "{:,.0f} [{:,.0f}, {:,.0f}]".format(*spread(c.rates).values()) if c.rounds else "-"


def gigabytes(c: Candidate) -> str:
    return figure(c.memory and c.memory / 1e9, "{:.2f}")
