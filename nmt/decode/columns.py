"""Columns of integers beside the text, read in step with it."""

from collections.abc import Iterable, Mapping
from itertools import islice

from nmt.data.columns import ColumnLine
from nmt.errors import Exit, UserError


class Columns:
    """Reads columns in step with the text."""

    def __init__(self, columns: Mapping[str, Iterable[str]], per: Mapping[str, str]) -> None:
        """`per`: whether each column has integers per word or per sentence."""
        self.streams = {name: iter(lines) for name, lines in columns.items()}
        self.per = per

    def read(self, count: int, first: int) -> list[dict[str, ColumnLine]]:
        """What stands beside each of `count` lines, the first of which has this number.

        Raises UserError (65) if a column ends before.
        """
        rows: list[dict[str, ColumnLine]] = [{} for _ in range(count)]
        for name, stream in self.streams.items():
            some = list(islice(stream, count))
            if len(some) < count:
                last = first - 1 + len(some)
                raise _unparallel(name, f"ends after line {last}, but the text goes on")
            for number, (row, text) in enumerate(zip(rows, some, strict=True), first):
                row[name] = ColumnLine(self.per[name], text, f"column {name}, line {number}")
        return rows

    def end(self, last: int) -> None:
        """Raise UserError (65) if a column goes on after the text."""
        for name, stream in self.streams.items():
            if next(stream, None) is not None:
                raise _unparallel(name, f"goes on, but the text ends after line {last}")


def _unparallel(name: str, what: str) -> UserError:
    return UserError(f"column {name}: {what}; the two must be parallel", Exit.DATA)
