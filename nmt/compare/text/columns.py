"""Aligned columns of text: padded, side by side, and below where a line is full."""

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

WIDTH = 110  # columns of a table; more buckets than fit go below
PROSE = 100  # columns of sentences
LABEL = 26  # a longer name of a system has a line to itself
GAP = "   "  # between columns


class NamedLine(NamedTuple):
    """One line of a table."""

    name: str
    cells: list[str]  # by column
    optional: bool = False  # left out where no column shown has a number


def aligned_table(lines: Sequence[NamedLine]) -> list[str]:
    """A table of lines behind their names, flush right."""
    width = _name_width(lines)
    return [text for line in _aligned(lines, str.rjust) for text in _labelled(line, width, "  ")]


def blocks(lines: Sequence[NamedLine], gap: str = GAP) -> list[str]:
    """Tables of as many columns side by side as fit; names stand before each."""
    aligned, names = _aligned(lines, str.ljust), _name_width(lines)
    widths = [len(cell) for cell in aligned[0].cells]
    tables, start = [], 0
    while start < len(widths):
        end, room = start + 1, WIDTH - names - len(gap) - widths[start]
        while end < len(widths) and room >= len(gap) + widths[end]:
            room -= len(gap) + widths[end]
            end += 1
        cut = [line._replace(cells=line.cells[start:end]) for line in aligned]
        shown = [line for line in cut if not line.optional or _has_number(line)]
        tables.append("\n".join(text for line in shown for text in _labelled(line, names, gap)))
        start = end
    return tables


def markdown_table(lines: Sequence[Sequence[str]], others: str = "--:") -> str:
    """The same for Markdown, its heading first; `others`: how cells behind the names align."""
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    heading, *below = ("| " + " | ".join(line) + " |" for line in cells)
    rule = "|" + "|".join([":--", *[others] * (len(cells[0]) - 1)]) + "|"
    return "\n".join([heading, rule, *below])


def _has_number(line: NamedLine) -> bool:
    return any(map(str.isdigit, "".join(line.cells)))


def _name_width(lines: Sequence[NamedLine]) -> int:
    return max((len(line.name) for line in lines if len(line.name) <= LABEL), default=0)


def _aligned(lines: Sequence[NamedLine], align: Callable[[str, int], str]) -> list[NamedLine]:
    """The lines with the cells of each column as wide as its widest."""
    columns = zip(*(line.cells for line in lines), strict=True)
    widths = [max(map(len, column)) for column in columns]
    return [line._replace(cells=list(map(align, line.cells, widths))) for line in lines]


def _labelled(line: NamedLine, width: int, gap: str) -> list[str]:
    """A line behind its name; a long name has a line of its own."""
    if len(line.name) > LABEL:
        behind = gap.join([" " * width, *line.cells]).rstrip()
        return [wrap(line.name), behind] if behind else [wrap(line.name)]
    return [gap.join([line.name.ljust(width), *line.cells]).rstrip()]


def wrap(line: str) -> str:
    """A sentence in lines that are not too long."""
    return textwrap.fill(line, PROSE, subsequent_indent="  ", break_on_hyphens=False)
