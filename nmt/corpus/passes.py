"""The two passes over a chunk of pairs: text becomes words, and words, once learned from, ids.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, columns_of
from nmt.corpus import report
from nmt.corpus.pairs import HASHES, LINES, SIDES, Pairs
from nmt.corpus.report import Counts, count_pairs
from nmt.corpus.scan import Chunk
from nmt.errors import UserError
from nmt.text.columns import ColumnLine, expand
from nmt.text.lines import BOM, decoded
from nmt.text.protection import Protection
from nmt.text.side import Sides
from nmt.text.tokenizer import Tokenizer, normalise

REJOINED = 50  # every so many lines, words are joined to text again
DROP_HINT = "mend the file, or set data.invalid_utf8=drop"


class CleanedText(NamedTuple):
    """The pairs of a chunk, as the second pass reads them."""

    corpus: str  # which of several it is from
    words: list[list[str]]  # [side, pair] separated by single spaces
    lines: list[int]  # [pair] their numbers
    hashes: list[int]  # [pair] equal for equal pairs, whatever their tags
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
    counts: Counts  # of the pairs that were dropped here
    changes: Sequence[Counter[str]]  # lines and characters that were changed
    words: Sequence[Counter[str]]


class Cleaning(NamedTuple):
    """The first pass over a split: decode, normalise, tokenise, count words."""

    data: Data
    tokenizers: Sequence[Tokenizer]  # of source and target
    count_words: bool
    directory: Path  # of the cleaned chunks

    def clean(self, chunk: Chunk) -> CleanedChunk:
        """Write a chunk's words and line numbers; UserError (65) at text that is not UTF-8."""
        text, counts, changes = chunk.text, Counts(), _count_marks(chunk)
        protection = Protection(self.tokenizers[0])
        pairs, lines, columns = list[tuple[str, str]](), list[int](), list[list[str]]()
        for number, (source, target, *integers) in enumerate(chunk.rows(), start=chunk.first):
            if max(len(source), len(target)) > self.data.max_line_bytes:
                counts[text.corpus, report.TOO_MANY_BYTES, "pairs"] += 1
                continue
            try:
                pair = (
                    decoded(source, f"{text.source.path}:{number}", DROP_HINT),
                    decoded(target, f"{text.target.path}:{number}", DROP_HINT),
                )
            except UserError:
                if self.data.invalid_utf8 == "fail":
                    raise
                counts[text.corpus, report.INVALID, "pairs"] += 1
                continue
            pairs.append(protection.pair(*pair))
            lines.append(text.before + number)
            columns.append([line.decode(errors="replace") for line in integers])
        raw = [[pair[side] for pair in pairs] for side in range(len(SIDES))]
        tried = [i for i, line in enumerate(lines) if line % REJOINED == 1]
        words = []
        for tokenizer, of_side, noted in zip(self.tokenizers, raw, changes, strict=True):
            words.append(tokenizer.lines(of_side, noted))
            noted += _count_rejoined(tokenizer, ((of_side[i], words[-1][i]) for i in tried))
        sources = [_leave_out_tag(line, text.tag, changes[0]) for line in words[0]]
        full = [pair for pair in zip(sources, words[1], strict=True) if all(pair)]
        of_words = [Counter[str](), Counter[str]()]
        for side, counted in enumerate(of_words if self.count_words else ()):
            counted.update(" ".join(pair[side] for pair in full).split())
        symbols = self.tokenizers[0].symbols
        hashes = [hash_pair(*pair, symbols) for pair in zip(sources, words[1], strict=True)]
        tagged = [f"{text.tag} {line}" if text.tag and line else line for line in sources]
        path = self.directory / str(text.before + chunk.first)
        cleaned = CleanedText(
            text.corpus, [tagged, words[1]], lines, hashes, raw[0] if text.columns else [], columns
        )
        path.write_bytes(json.dumps(cleaned, ensure_ascii=False).encode())
        return CleanedChunk(path, len(pairs), len(full), counts, changes, of_words)


def _count_marks(chunk: Chunk) -> list[Counter[str]]:
    """Count what is at the ends of lines and of the file, by side."""
    changes = []
    for lines in chunk.lines[: len(SIDES)]:
        carriage_returns = sum(line.removesuffix(b"\n").endswith(b"\r") for line in lines)
        has_mark = chunk.first == 1 and lines[0].startswith(BOM)
        counted = {"crlf_lines": carriage_returns, "byte_order_mark_lines": int(has_mark)}
        changes.append(+Counter(counted))
    return changes


def _count_rejoined(tokenizer: Tokenizer, lines: Iterable[tuple[str, str]]) -> Counter[str]:
    """Count lines without symbols, and those that become another text if words are joined again.

    `lines`: each, and its words.
    """
    both = [
        (normalise(line, tokenizer.normalize), tokenizer.text(words))
        for line, words in lines
        if tokenizer.parts(line) == [line]
    ]
    changed = sum(line != joined for line, joined in both)
    return +Counter({report.REJOINED: len(both), report.OTHERWISE: changed})


def _leave_out_tag(line: str, tag: str, changes: Counter[str]) -> str:
    """Leave out a tag that the text has already; else it would be there twice."""
    first, _, rest = line.partition(" ")
    if not tag or first != tag:
        return line
    changes[report.TAGGED] += 1
    return rest


def hash_pair(source: str, target: str, symbols: Collection[str]) -> int:
    """Hash the words of a pair, without a symbol as a tag before the source, to 64 bits."""
    first, _, rest = source.partition(" ")
    pair = f"{rest if first in symbols else source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


class NumberedChunk(NamedTuple):
    """The kept pairs of a chunk."""

    pairs: Pairs
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    counts: Counts  # of all pairs, by outcome


class Numbering(NamedTuple):
    """The second pass over a split: segment its words, number the pieces, drop pairs."""

    data: Data
    sides: Sides
    columns: Mapping[str, Path]  # files parallel to the source
    limited: bool  # whether pairs of too many pieces, or of unlike lengths, are dropped

    def number(self, path: Path) -> NumberedChunk:
        """Turn the words of a cleaned chunk into ids."""
        text = CleanedText.read(path)
        ids = [
            [side.vocabulary.ids(side.segmenter.segment(line)) for line in lines]
            for side, lines in zip(self.sides, text.words, strict=True)
        ]
        source, target = (np.array([len(line) - 1 for line in side], np.int64) for side in ids)
        outcome = self._decide(source, target)
        kept = np.flatnonzero(outcome == report.OUTCOMES.index(report.KEPT))
        rows = {name: [side[i] for i in kept] for name, side in zip(SIDES, ids, strict=True)}
        lines = np.array(text.lines, LINES)[kept]
        columns = self._expand_columns(text, kept) if self.columns else {}
        return NumberedChunk(
            Pairs.of_rows(lines, rows, np.dtype(np.uint32), columns_of(self.data), columns),
            np.array(text.hashes, HASHES)[kept],
            count_pairs(outcome, report.OUTCOMES, (source, target), text.corpus),
        )

    def _decide(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what becomes of pairs of these lengths, as numbers among the OUTCOMES [pair]."""
        longer, shorter = np.maximum(source, target), np.minimum(source, target)
        faults = {report.EMPTY: shorter == 0}  # of several the first counts
        if self.limited:
            faults[report.TOO_LONG] = longer > self.data.max_length
        if self.limited and self.data.max_ratio is not None:
            faults[report.UNLIKE] = longer > self.data.max_ratio * shorter
        numbers = [report.OUTCOMES.index(why) for why in faults]
        return np.select([*faults.values()], numbers, report.OUTCOMES.index(report.KEPT))

    def _expand_columns(
        self, text: CleanedText, kept: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int32]]:
        """Return the columns of the kept pairs; UserError (65) if a line does not fit its text."""
        per = columns_of(self.data)
        columns: dict[str, list[int]] = {name: [] for name in per}
        for i in kept:
            lines = {
                name: ColumnLine(per[name], integers, f"{path}:{text.lines[i]}")
                for (name, path), integers in zip(
                    self.columns.items(), text.columns[i], strict=True
                )
            }
            where = next(iter(lines.values())).where
            segmenter = self.sides[0].segmenter
            for name, values in expand(text.raw[i], lines, segmenter, where).items():
                columns[name] += values
        return {name: np.array(values, np.int32) for name, values in columns.items()}
