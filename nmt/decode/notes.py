"""Unusual lines: counted by kind, and logged after the last line."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from nmt.errors import Exit, RefusedLinesError

SHOWN = 8  # target languages of a model that a message names
LENGTHS = "sources of more than {longest} pieces (decode.max_source, position table)"
WARNINGS = {
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
}  # kind of unusual line -> what is logged
ERRORS = {
    "refused": LENGTHS + ", their lines left empty: {note}; split them, together with their "
    "columns and target prefixes, or choose decode.too_long=split",
    "pairs": "pairs of which a side has more pieces than a batch (batch_tokens) or the encoding "
    "holds, their lines left empty: {note}; split them, or raise batch_tokens",
    "unfit": "target prefixes of unknown pieces, longer than their translation may be, or of empty "
    "lines, their lines left empty: {note}; change or empty them",
}  # kind of unusual line -> why it is left empty

log = logging.getLogger(__name__)


class Notes:
    """Counts of unusual lines by kind, a key of WARNINGS or ERRORS."""

    def __init__(self, counts: Mapping[str, Sequence[int]] | None = None) -> None:
        # kind -> how many, the line of the first, pieces of the longest
        self.counts = {kind: list(numbers) for kind, numbers in (counts or {}).items()}

    def add(self, kind: str, line: int, pieces: int = 0, count: int = 1) -> None:
        """Count something unusual of a line, of so many pieces."""
        before, first, longest = self.counts.get(kind, (0, line, 0))
        self.counts[kind] = [before + count, first, max(longest, pieces)]

    def update(self, later: "Notes") -> None:
        """Add the counts of lines that follow."""
        for kind, (count, first, longest) in later.counts.items():
            self.add(kind, first, longest, count)

    def report(
        self, codes: Iterable[str], trained: int | None = None, longest: int | None = None
    ) -> None:
        """Log one line for each kind; raises RefusedLinesError (65) if lines were left empty.

        `trained` is the longest source in training in pieces, `longest` the limit of a source, and
        `codes` are the target languages of a multilingual model.
        """
        facts = {"codes": ", ".join(islice(codes, SHOWN)), "trained": trained, "longest": longest}
        errors = list[str]()
        for kind, message in (WARNINGS | ERRORS).items():
            if kind in self.counts:
                count, first, pieces = self.counts[kind]
                longest_line = f"; longest: {pieces} pieces" if pieces else ""
                text = message.format(note=f"{count} (first: line {first}{longest_line})", **facts)
                if kind in ERRORS:
                    errors.append(text)
                else:
                    log.warning(text)
        if errors:
            raise RefusedLinesError("; ".join(errors), Exit.DATA)
