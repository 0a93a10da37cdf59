"""A line of text, the numbers that a model reads of it, and notes about unusual lines."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

from nmt.config.settings import Settings
from nmt.errors import Exit, RefusedLinesError
from nmt.text.columns import ColumnLine
from nmt.text.protection import ProtectedLine
from nmt.text.side import Side
from nmt.text.vocab import EOS

LENGTH = "length"  # the column of lengths in pieces: decode.target_length=given, length=forced
NOT_EOS = -1  # where an output may have any id but EOS
SHOWN = 8  # target languages of a model that a message names
LENGTHS = "sources of more than {longest} pieces (decode.max_source, position table)"
MESSAGES = {
    "uncoded": "sources that do not begin with a target language of this model: {note}; it knows "
    "{codes}",
    "unknown": "sources of unknown pieces alone: {note}; their translations are invented",
    "sentences": "lines translated in groups of sentences (decode.split): {note}",
    "long": "sources of more pieces than the longest in training ({trained}): {note}; translated "
    "whole; quality beyond the trained length is not assured",
    "split": LENGTHS + ", translated in parts: {note}",
    "truncated": LENGTHS + ", cut: {note}",
    "cut": "translations cut at the limit of their length: {note}; the limit is set by "
    "decode.max_length_ratio, decode.max_length_offset and position tables",
    "broken": "translations that end where the model gave no finite score: {note}",
    "lost": "protected strings lost: {note}",
}  # kind -> what is logged
ERRORS = {
    "refused": LENGTHS + ", their lines left empty: {note}; split them, together with their "
    "columns and target prefixes, or choose decode.too_long=split",
    "pairs": "pairs of which a side has more pieces than a batch (batch_tokens) or the encoding "
    "holds, their lines left empty: {note}; split them, or raise batch_tokens",
    "unfit": "target prefixes with which no translation can begin, their lines left empty: {note}; "
    "change or empty them",
}  # kind -> why lines are left empty

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """A line as the model reads it, or a part of a line that is translated in parts."""

    ids: list[int]  # ending in EOS
    columns: dict[str, list[int]]  # as many integers as ids, or one
    line: int = 1  # its number in the text, from 1
    part: int = 0  # of the line, from 0
    required: Sequence[int] = ()  # what its output has from the beginning on: ids, or NOT_EOS
    limit: int = 0  # ids of its output at most, without eos; unused where the output is given
    text: str = ""  # as it was given; empty if nothing reads it again
    protected: ProtectedLine = ProtectedLine("", {})  # this text as the model reads it
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


@dataclass
class Line:
    """A line of text on its way to its translation, with the lines of other files."""

    number: int  # from 1
    text: str  # without the end of the line
    columns: dict[str, ColumnLine]
    target: str  # prefix of its translation, or the translation; empty where there is none
    parts: list[Source] = field(default_factory=list)  # what is translated, without empty ones
    notes: list[tuple[str, int, int]] = field(default_factory=list)  # for `Notes.add`

    def note(self, kind: str, pieces: int = 0, count: int = 1) -> None:
        """Note something unusual of so many pieces, by a kind of MESSAGES or ERRORS."""
        self.notes.append((kind, pieces, count))


class Notes:
    """Counts of unusual lines by kind, a key of MESSAGES or ERRORS."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        """`before`: the `counts` of earlier lines."""
        # kind -> number of lines, the first of them, pieces of the longest
        self.counts = {kind: list(numbers) for kind, numbers in (before or {}).items()}

    def add(self, lines: Iterable[Line]) -> None:
        """Count what was noted of lines."""
        for line in lines:
            for kind, pieces, count in line.notes:
                before, first, longest = self.counts.get(kind, (0, line.number, 0))
                longest = max(longest, pieces)
                self.counts[kind] = [before + count, min(first, line.number), longest]

    def report(
        self, codes: Iterable[str], trained: int | None = None, longest: int | None = None
    ) -> None:
        """Log one line for each kind; raises RefusedLinesError (65) if lines were left empty.

        `trained` is the longest source in training in pieces, `longest` the limit of a source, and
        `codes` are the target languages of a multilingual model.
        """
        facts = {"codes": ", ".join(islice(codes, SHOWN)), "trained": trained, "longest": longest}
        errors = list[str]()
        for kind, message in (MESSAGES | ERRORS).items():
            if kind in self.counts:
                count, first, pieces = self.counts[kind]
                of_longest = f"; longest: {pieces} pieces" if pieces else ""
                text = message.format(note=f"{count} (first: line {first}{of_longest})", **facts)
                if kind in ERRORS:
                    errors.append(text)
                else:
                    log.warning(text)
        if errors:
            raise RefusedLinesError("; ".join(errors), Exit.DATA)


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


def cut(ids: list[int], most: int | None) -> list[int]:
    """The first ids of a text, at most so many with EOS; None: all."""
    return ids if most is None or len(ids) <= most else [*ids[: most - 1], EOS]


def within_table(pieces: int, table: int | None) -> int:
    """So many pieces, or as many as a position table holds next to eos or bos; None: any."""
    return pieces if table is None else min(pieces, table - 1)
