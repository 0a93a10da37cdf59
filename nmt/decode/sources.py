"""A line of text, and what a model reads of it."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from nmt.config.settings import Settings
from nmt.text.columns import ColumnLine
from nmt.text.protection import ProtectedLine
from nmt.text.side import Side
from nmt.text.vocab import EOS

LENGTH = "length"  # the column of lengths in pieces: decode.target_length=given, length=forced
NOT_EOS = -1  # where an output may have any id but EOS


@dataclass
class Line:
    """A line of text on its way to its translation, with the lines of other files."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none
    parts: "list[Source]" = field(default_factory=list)  # what is translated, without empty ones
    notes: list[tuple[str, int, int]] = field(default_factory=list)  # for `notes.Notes.add`

    def note(self, kind: str, pieces: int = 0, count: int = 1) -> None:
        """Note something unusual of so many pieces, by a kind of `notes.MESSAGES`."""
        self.notes.append((kind, pieces, count))


class Source(NamedTuple):
    """A line as the model reads it, or a part of a line that is translated in parts."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of the line, from 0
    required: Sequence[int] = ()  # what its output has from the beginning on: ids, or NOT_EOS
    limit: int = 0  # ids of its output at most, without eos; unused where the output is given
    text: str = ""  # as it was given; empty where nobody reads it again
    protected: ProtectedLine = ProtectedLine("", {})  # the same, as the model reads it
    target: Sequence[int] = ()  # ids of a given translation, ending in EOS

    @property
    def pieces(self) -> int:
        """Ids without EOS."""
        return len(self.ids) - 1

    @property
    def length(self) -> int:
        """Ids of the longer side."""
        return max(len(self.ids), len(self.target))

    def cut(self, most: int | None) -> "Source":
        """The source with at most so many ids; None: all."""
        return self._replace(ids=cut(self.ids, most))

    def fits(self, tables: tuple[int | None, int | None], most: int) -> bool:
        """Whether a batch of `most` ids, and position tables of these sizes, hold both sides."""
        sides = zip((self.ids, self.target), tables, strict=True)
        return all(len(ids) <= min(most, table or most) for ids, table in sides)


class TextSides(Protocol):
    """The parts of a model that a reader needs besides its engine, as modeldir.Trained has."""

    @property
    def settings(self) -> Settings: ...
    @property
    def source(self) -> Side: ...
    @property
    def target(self) -> Side: ...
    @property
    def facts(self) -> dict[str, Any]:
        """`longest_source` is the pieces of the longest source in training; None: unknown."""


class InputLimits(Protocol):
    """What a model or an engine reads, and how much of it."""

    @property
    def columns(self) -> Set[str]: ...
    @property
    def column_ranges(self) -> Mapping[str, range]:
        """The integers that each column may hold, by name; those without an entry: any."""

    @property
    def source_limit(self) -> int | None:
        """Ids of the longest source that it holds, with eos; None: any length."""

    @property
    def target_limit(self) -> int | None:
        """Ids of the longest output that it holds, with bos or eos; None: any length."""


def cut(ids: list[int], most: int | None) -> list[int]:
    """The first ids of a text, at most so many with EOS; None: all."""
    return ids if most is None or len(ids) <= most else [*ids[: most - 1], EOS]


def within_table(pieces: int, table: int | None) -> int:
    """So many pieces, or as many as a table of positions holds with eos or bos; None: any."""
    return pieces if table is None else min(pieces, table - 1)
