"""Streams of lines that are read in step: a text, its columns, and prefixes or translations."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from nmt.errors import Exit, UserError
from nmt.text.columns import ColumnLine


class ParallelLine(NamedTuple):
    """A line of text, and the lines of other streams that belong to it."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none


def parallel_lines(
    text: Iterable[str],
    columns: Mapping[str, Iterable[str]],
    per: Mapping[str, str],
    targets: Iterable[str] | None,
    target_name: str,
    first: int = 1,
) -> Iterator[ParallelLine]:
    """Read streams in step, line by line.

    `per`: whether a column has integers per word or per sentence. `target_name` is for errors, as
    "target prefixes". `first` is the number of the first line. Raises UserError (65) if a stream
    has fewer lines than the text, or more.
    """
    streams = [(f"column {name}: ends", f"column {name}: goes on", iter(lines))
               for name, lines in columns.items()]  # fmt: skip
    if targets is not None:
        streams.append((f"the {target_name} end", f"the {target_name} go on", iter(targets)))
    number = first - 1
    for number, line in enumerate(text, first):
        values = []
        for ends, _, stream in streams:
            if (value := next(stream, None)) is None:
                raise _unparallel(f"{ends} after line {number - 1}, but the text goes on")
            values.append(value)
        of_columns = {
            name: ColumnLine(per[name], value, f"column {name}, line {number}")
            for name, value in zip(columns, values, strict=False)
        }
        target = "" if targets is None else _stripped(values[-1])
        yield ParallelLine(number, _stripped(line), of_columns, target)
    for _, goes_on, stream in streams:
        if next(stream, None) is not None:
            raise _unparallel(f"{goes_on}, but the text ends after line {number}")


def windows(
    lines: Iterable[ParallelLine], size: int, has_more: Callable[[], bool] = lambda: True
) -> Iterator[list[ParallelLine]]:
    """Lines by window; a multiple of `size` ends one, as outputs are resumed there.

    So does a line after which `has_more` says that no other has arrived yet.
    """
    window: list[ParallelLine] = []
    for line in lines:
        window.append(line)
        if line.number % size == 0 or not has_more():
            yield window
            window = []
    if window:
        yield window


def _stripped(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _unparallel(what: str) -> UserError:
    return UserError(f"{what}; the two must be parallel", Exit.DATA)
