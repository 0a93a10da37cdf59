"""Figures as plain text: what a part of the bench prints, and what it writes as JSON."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from scripts.bench.rounds import spread

GIGA = 1e9


class Part(NamedTuple):
    """What came of one part."""

    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]
    found: dict[str, Any]  # for JSON: every round's figures

    def text(self) -> str:
        """The table, as it stands on stdout."""
        lines = [self.title, *aligned([self.columns, *self.rows])]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)]) + "\n"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell: the first one and the last to the left, else right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    last = len(widths) - 1
    found = []
    for row in rows:
        cells = [
            cell.ljust(width) if k in (0, last) else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        found.append("  ".join(cells).rstrip())
    return found


def figure(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else form.format(value)


def ranged(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """Median [least, most]."""
    if not values:
        return "-"
    found = spread(values)
    return f"{form.format(found.median)} [{form.format(found.least)}, {form.format(found.most)}]"
