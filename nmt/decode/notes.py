"""Counts of lines that were unusual, reported after the last line."""

import logging
from collections.abc import Mapping, Sequence

SHOWN = 8  # target languages of a model that a line about them names
LENGTHS = "sources of more than {longest} pieces (decode.max_source, position table)"
MESSAGES = {
    "uncoded": "sources that do not begin with a target language of this model: {note}; begin each "
    "with one, as in `{code} Hello.`; it knows {known}",
    "unknown": "sources of unknown pieces alone: {note}; their translations are invented",
    "sentences": "lines translated in groups of sentences (decode.split): {note}",
    "long": "sources of more pieces than the longest in training ({trained}): {note}; translated "
    "whole; quality beyond the trained length is not assured",
    "split": LENGTHS + ", translated in parts: {note}",
    "truncated": LENGTHS + ", cut: {note}",
    "cut": "translations cut at the limit of their length: {note}; the limit is set by "
    "decode.max_length_ratio, decode.max_length_offset and position tables",
    "broken": "translations that end where the model gave no finite score: {note}",
    "lost": "protected strings lost: {count} (first: line {first})",
}  # kind -> what is logged
REFUSED, UNFIT = "refused", "unfit"  # kinds of lines that are left empty, which is an error

log = logging.getLogger(__name__)


class Notes:
    """How many lines were unusual, by kind: those of MESSAGES, REFUSED and UNFIT."""

    def __init__(self, before: Mapping[str, Sequence[int]] | None = None) -> None:
        """`before`: `counts` of the notes of the lines before these."""
        # kind -> number of lines, the first of them, pieces of the longest
        self.counts = {kind: list(numbers) for kind, numbers in (before or {}).items()}

    def add(self, kind: str, line: int, pieces: int, count: int = 1) -> None:
        """Count a line, numbered from 1, with its length in pieces."""
        before, first, longest = self.counts.get(kind, (0, line, 0))
        self.counts[kind] = [before + count, min(first, line), max(longest, pieces)]

    def merge(self, later: "Notes") -> None:
        """Add what was unusual about later lines."""
        for kind, (count, first, longest) in later.counts.items():
            self.add(kind, first, longest, count)

    def describe(self, kind: str) -> str:
        """How many lines of a kind, the first and the longest; empty where there is none."""
        if kind not in self.counts:
            return ""
        count, first, longest = self.counts[kind]
        return f"{count} (first: line {first}; longest: {longest} pieces)"

    def report(self, trained: int | None, longest: int, codes: Sequence[str] = ()) -> None:
        """Log one line for each kind; lengths in pieces, without eos.

        `trained` is the longest source in training, `longest` the limit of a source, and `codes`
        are the target languages of a multilingual model.
        """
        known = ", ".join(codes[:SHOWN]) + (", ..." if codes[SHOWN:] else "")
        facts = {"trained": trained, "longest": longest, "known": known, "code": [*codes, ""][0]}
        for kind, message in MESSAGES.items():
            if kind in self.counts:
                count, first, _ = self.counts[kind]
                facts |= {"note": self.describe(kind), "count": count, "first": first}
                log.warning(message.format(**facts))

    def refusals(self, longest: int, too_long: str) -> str:
        """Why some lines were left empty, given decode.too_long; empty: none was."""
        reasons = []
        if refused := self.describe(REFUSED):
            advice = "split them, or choose decode.too_long=split"
            if too_long == "split":
                advice = "split them together with their columns or target prefixes"
            lengths = LENGTHS.format(longest=longest)
            reasons.append(f"{lengths}, their lines left empty: {refused}; {advice}")
        if UNFIT in self.counts:
            count, first, _ = self.counts[UNFIT]
            reasons.append(
                "target prefixes with which no translation can begin, their lines left empty: "
                f"{count} (first: line {first}); change or empty them"
            )
        return "; ".join(reasons)
