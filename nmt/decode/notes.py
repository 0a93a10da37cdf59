"""Counts of lines that were unusual, reported after the last line."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

SHOWN = 8  # target languages of a model that a line about them names

log = logging.getLogger(__name__)


@dataclass
class Note:
    """How many lines were unusual in one way."""

    count: int = 0
    first: int = 0
    longest: int = 0

    def add(self, line: int, pieces: int) -> None:
        """Count a line, numbered from 1, and how many pieces it has."""
        self.merge(Note(1, line, pieces))

    def merge(self, other: "Note") -> None:
        """Count those of others, too."""
        if other.count:
            self.first = min(self.first, other.first) if self.count else other.first
            self.count += other.count
            self.longest = max(self.longest, other.longest)

    def __str__(self) -> str:
        return f"{self.count} (first: line {self.first}; longest: {self.longest} pieces)"


class Notes:
    """Lines that were unusual, by kind."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        """`before`: `plain()` of the notes of the lines before these."""
        self.long = Note()  # source beyond the trained length
        self.sentences = Note()  # split into sentences, as decode.split says
        self.split = Note()  # source too long for table or max_source: translated in parts
        self.truncated = Note()  # likewise: cut
        self.refused = Note()  # likewise: line left empty
        self.unfit = Note()  # no translation can begin with the target prefix: line left empty
        self.cut = Note()  # output at its limit
        self.broken = Note()  # output that met no finite score
        self.uncoded = Note()  # source that names no target language of a multilingual model
        self.unknown = Note()  # source of unknown pieces alone
        self.lost = Note()  # protected string of a source that its translation lacks

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
        """Log one line for each kind; lengths in pieces, without eos.

        `longest` is the limit of a source; `codes` are the target languages of a multilingual
        model.
        """
        known = ", ".join(codes[:SHOWN]) + (", ..." if codes[SHOWN:] else "")
        too_long = f"sources of more than {longest} pieces (decode.max_source, position table)"
        for note, message in (
            (self.uncoded, "sources that do not begin with a target language of this model: %s; "
             f"begin each with one, as in `{codes[0] if codes else ''} Hello.`; it knows {known}"),
            (self.unknown, "sources of unknown pieces alone: %s; their translations are invented"),
            (self.sentences, "lines translated in groups of sentences (decode.split): %s"),
            (self.long, f"sources of more pieces than the longest in training ({longest_trained}): "
             "%s; translated whole; quality beyond the trained length is not assured"),
            (self.split, f"{too_long}, translated in parts: %s"),
            (self.truncated, f"{too_long}, cut: %s"),
            (self.cut, "translations cut at the limit of their length: %s; the limit is set by "
             "decode.max_length_ratio, decode.max_length_offset and position tables"),
            (self.broken, "translations that end where the model gave no finite score: %s"),
        ):  # fmt: skip
            if note.count:
                log.warning(message, note)
        if (lost := self.lost).count:
            log.warning("protected strings lost: %d (first: line %d)", lost.count, lost.first)

    def refusals(self, longest: int, too_long: str) -> str:
        """Why some lines were left empty, given decode.too_long; empty: none was."""
        reasons = []
        if self.refused.count:
            advice = "split them, or choose decode.too_long=split"
            if too_long == "split":
                advice = "split them together with their columns or target prefixes"
            reasons.append(
                f"sources of more than {longest} pieces (decode.max_source, position table), "
                f"their lines left empty: {self.refused}; {advice}"
            )
        if self.unfit.count:
            reasons.append(
                "target prefixes with which no translation can begin, their lines left empty: "
                f"{self.unfit.count} (first: line {self.unfit.first}); change or empty them"
            )
        return "; ".join(reasons)
