"""Beginnings that translations must have, read in step with the text."""

from collections.abc import Iterable
from itertools import islice

from nmt.data.side import Side
from nmt.data.vocab import UNK
from nmt.errors import Exit, UserError


class UnfitPrefixError(UserError):
    """No translation can begin so: a matter of this line alone."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"target prefix, line {number}: {message}", Exit.DATA)


class Prefixes:
    """Reads the beginning of each translation, and numbers it as a translation is numbered."""

    def __init__(self, lines: Iterable[str] | None, target: Side) -> None:
        """`lines`: one for each line of the text, empty where nothing is given; None: nowhere."""
        self.stream = None if lines is None else iter(lines)
        self.target = target

    def read(self, count: int, first: int) -> list[str]:
        """`count` lines, the first of which has this number; UserError (65) if they end before."""
        if self.stream is None:
            return [""] * count
        some = list(islice(self.stream, count))
        if len(some) < count:
            last = first - 1 + len(some)
            raise _unparallel(f"end after line {last}, but the text goes on")
        return [text.removesuffix("\n").removesuffix("\r") for text in some]

    def ids(self, text: str, number: int) -> list[int]:
        """The ids of a line, eos apart; UnfitPrefixError for a piece that the model cannot say."""
        ids = self.target.ids(text)[:-1] if text else []
        if UNK in ids:
            piece = self.target.segmenter.encode(text)[ids.index(UNK)]
            raise UnfitPrefixError(number, f"the model does not know the piece {piece!r}")
        return ids

    def end(self, last: int) -> None:
        """Raise UserError (65) if prefixes go on after the text."""
        if self.stream is not None and next(self.stream, None) is not None:
            raise _unparallel(f"go on, but the text ends after line {last}")


def _unparallel(what: str) -> UserError:
    return UserError(f"the target prefixes {what}; the two must be parallel", Exit.DATA)
