"""Counts of lines that were unusual, reported after the last line."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from nmt.decode.sources import Line
from nmt.errors import Exit, RefusedLinesError

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


class Notes:
    """How many lines were unusual, by kind: those of MESSAGES and ERRORS."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        """`before`: `counts` of the notes of the lines before these."""
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
