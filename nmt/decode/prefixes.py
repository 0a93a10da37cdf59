"""Beginnings that translations must have, read in step with the text."""

from collections.abc import Iterable
from itertools import islice

from nmt.data.side import Side
from nmt.data.vocab import UNK
from nmt.errors import Exit, UserError


class Prefixes:
    """Reads the beginning of each translation, and numbers it as a translation is numbered."""

    def __init__(self, lines: Iterable[str] | None, target: Side) -> None:
        """`lines`: one for each line of the text, empty where nothing is given; None: nowhere."""
        self.stream = None if lines is None else iter(lines)
        self.target = target

    def read(self, count: int, first: int) -> list[list[int]]:
        """The ids, eos apart, for each of `count` lines, the first of which has this number.

        Raises UserError (65) if the prefixes end before, and for a piece that the model cannot say.
        """
        if self.stream is None:
            return [[] for _ in range(count)]
        some = list(islice(self.stream, count))
        if len(some) < count:
            last = first - 1 + len(some)
            raise _unparallel(f"end after line {last}, but the text goes on")
        return [self._ids(text, number) for number, text in enumerate(some, first)]

    def _ids(self, text: str, number: int) -> list[int]:
        text = text.removesuffix("\n").removesuffix("\r")
        ids = self.target.ids(text)[:-1]
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            raise UserError(
                f"target prefix, line {number}: the model does not know the piece {piece!r}; "
                "leave it out",
                Exit.DATA,
            )
        return ids

    def end(self, last: int) -> None:
        """Raise UserError (65) if prefixes go on after the text."""
        if self.stream is not None and next(self.stream, None) is not None:
            raise _unparallel(f"go on, but the text ends after line {last}")


def _unparallel(what: str) -> UserError:
    return UserError(f"the target prefixes {what}; the two must be parallel", Exit.DATA)
