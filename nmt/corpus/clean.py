"""First pass over a chunk of pairs: decode, normalise, tokenise, count words.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES
from nmt.corpus.report import HELD, INVALID, NOT_SEGMENTED, TOO_MANY_BYTES, Tally, no_tally
from nmt.corpus.scan import Chunk
from nmt.errors import UserError
from nmt.text.lines import BOM, decoded
from nmt.text.protection import Protection
from nmt.text.tokenizer import Tokenizer

DROP_HINT = "mend the file, or set data.invalid_utf8=drop"


class CleanedText(NamedTuple):
    """The pairs of a chunk, as the second pass reads them."""

    words: list[list[str]]  # [side, pair] separated by single spaces
    lines: list[int]  # [pair] their numbers
    raw: list[str]  # [pair] sources before they are tokenised: columns go by their words
    columns: list[list[str]]  # [pair, column]

    @classmethod
    def read(cls, path: Path) -> "CleanedText":
        """Read what `Cleaning.clean` wrote."""
        return cls(*json.loads(path.read_bytes()))


class CleanedChunk(NamedTuple):
    """A cleaned chunk, whose words are in a file. Sequences are in the order of SIDES."""

    path: Path  # of its CleanedText
    pairs: int
    full: int  # of the pairs: those with words on both sides
    tally: Tally  # pairs dropped here
    changes: Sequence[Counter[str]]
    words: Sequence[Counter[str]]
    corpus: str  # which of several it is from


class Cleaning(NamedTuple):
    """The first pass over the text of a split."""

    data: Data
    tokenizers: Sequence[Tokenizer]  # of source and target
    count_words: bool
    directory: Path  # of the cleaned chunks

    def clean(self, chunk: Chunk) -> CleanedChunk:
        """Write a chunk's words and line numbers; UserError (65) at text that is not UTF-8."""
        text, tally = chunk.text, no_tally()
        changes: list[Counter[str]] = [Counter(), Counter()]
        pairs, numbers, columns = list[tuple[str, str]](), list[int](), list[list[str]]()
        protection = Protection(self.tokenizers[0])
        rows = zip(chunk.numbers, zip(*chunk.lines, strict=True), chunk.rows(), strict=True)
        for number, whole, (source, target, *integers) in rows:
            if number in chunk.held:
                tally[NOT_SEGMENTED, HELD, 0] += 1
                continue
            for line, noted in zip(whole, changes, strict=False):
                if line.removesuffix(b"\n").endswith(b"\r"):
                    noted["crlf_lines"] += 1
                if number == 1 and line.startswith(BOM):
                    noted["byte_order_mark_lines"] += 1
            if max(len(source), len(target)) > self.data.max_line_bytes:
                tally[NOT_SEGMENTED, TOO_MANY_BYTES, 0] += 1
                continue
            try:
                pair = (
                    decoded(source, f"{text.source.path}:{number}", DROP_HINT),
                    decoded(target, f"{text.target.path}:{number}", DROP_HINT),
                )
            except UserError:
                if self.data.invalid_utf8 == "fail":
                    raise
                tally[NOT_SEGMENTED, INVALID, 0] += 1
                continue
            pairs.append(protection.pair(*pair))
            numbers.append(text.before + number)
            columns.append([line.decode(errors="replace") for line in integers])
        sides = [[pair[side] for pair in pairs] for side in range(len(SIDES))]
        sources, targets = (
            tokenizer.lines(lines, noted)
            for tokenizer, lines, noted in zip(self.tokenizers, sides, changes, strict=True)
        )
        full = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
        words: list[Counter[str]] = [Counter(), Counter()]
        if self.count_words:
            words = [Counter(" ".join(pair[side] for pair in full).split()) for side in (0, 1)]
        if text.tag:
            sources = [f"{text.tag} {line}" if line else line for line in sources]
        raw = sides[0] if text.columns else []
        path = self.directory / str(text.before + chunk.numbers[0])
        cleaned = [sources, targets], numbers, raw, columns
        path.write_bytes(json.dumps(cleaned, ensure_ascii=False).encode())
        return CleanedChunk(path, len(pairs), len(full), tally, changes, words, text.corpus)
