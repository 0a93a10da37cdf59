"""What was unusual about some lines of a text, counted while it is translated."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

SHOWN = 8  # target languages of a model that a line about them names

log = logging.getLogger(__name__)


@dataclass
class Note:
    """How many lines something befell."""

    count: int = 0
    first: int = 0
    longest: int = 0

    def add(self, line: int, pieces: int) -> None:
        """Count a line, numbered from 1, and how many pieces it has."""
        self.first = min(self.first, line) if self.count else line
        self.count += 1
        self.longest = max(self.longest, pieces)

    def merge(self, later: "Note") -> None:
        """Count those of later lines, too."""
        if later.count:
            self.first = self.first if self.count else later.first
            self.count += later.count
            self.longest = max(self.longest, later.longest)

    def __str__(self) -> str:
        return f"{self.count} (first: line {self.first}; longest: {self.longest} pieces)"


class Notes:
    """What is reported after the last line."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        """`before`: `plain()` of the notes of the lines before these."""
        self.long = Note()  # source beyond the trained length
        self.split = Note()  # source too long for table or max_source: translated in parts
        self.truncated = Note()  # likewise: cut
        self.refused = Note()  # likewise: line left empty
        self.unfit = Note()  # target prefix that cannot be: line left empty
        self.cut = Note()  # output at its limit
        self.broken = Note()  # output that met no finite score
        self.uncoded = Note()  # source that names no target language of a multilingual model

        for name, numbers in (before or {}).items():
            setattr(self, name, Note(*numbers))

    def plain(self) -> dict[str, list[int]]:
        """The notes as plain values."""
        return {name: list(astuple(note)) for name, note in vars(self).items()}

    def merge(self, later: "Notes") -> None:
        """Add what was unusual about later lines."""
        for name, note in vars(later).items():
            getattr(self, name).merge(note)

    def report(self, longest_trained: int | None, longest: int, codes: Sequence[str] = ()) -> None:
        """Log one line for each kind; lengths in pieces, eos apart.

        `codes`: of the target languages of a multilingual model.
        """
        if self.uncoded.count:
            log.warning(
                "sources that do not begin with a target language of this model: %s; "
                "begin each with one, as in `%s Hello.`; it knows %s%s",
                self.uncoded, codes[0], ", ".join(codes[:SHOWN]), ", ..." if codes[SHOWN:] else "",
            )  # fmt: skip
        if self.long.count:
            log.warning(
                "sources of more pieces than the longest in training (%d): %s; "
                "translated whole; quality beyond the trained length is not assured",
                longest_trained,
                self.long,
            )
        if self.split.count:
            log.warning(
                "sources of more than %d pieces (decode.max_source, position table), "
                "translated in parts: %s",
                longest,
                self.split,
            )
        if self.truncated.count:
            log.warning(
                "sources of more than %d pieces (decode.max_source, position table), cut: %s",
                longest,
                self.truncated,
            )
        if self.cut.count:
            log.warning(
                "translations cut at the limit of their length: %s; the limit is set by "
                "decode.max_length_ratio and decode.max_length_offset",
                self.cut,
            )
        if self.broken.count:
            log.warning(
                "translations that end where the model gave no finite score: %s", self.broken
            )
