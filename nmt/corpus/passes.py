"""The two passes over a chunk of pairs: text becomes words, and words, once learned from, ids.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, columns_of
from nmt.corpus import report
from nmt.corpus.pairs import HASHES, LINES, SIDES
from nmt.corpus.report import Tally
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
    tally: Tally  # pairs dropped here
    changes: Sequence[Counter[str]]
    words: Sequence[Counter[str]]
    corpus: str  # which of several it is from


class Cleaning(NamedTuple):
    """The first pass over a split: decode, normalise, tokenise, count words."""

    data: Data
    tokenizers: Sequence[Tokenizer]  # of source and target
    count_words: bool
    directory: Path  # of the cleaned chunks

    def clean(self, chunk: Chunk) -> CleanedChunk:
        """Write a chunk's words and line numbers; UserError (65) at text that is not UTF-8."""
        text, tally = chunk.text, report.no_tally()
        changes = self._count_marks(chunk)
        pairs, numbers, columns = list[tuple[str, str]](), list[int](), list[list[str]]()
        protection = Protection(self.tokenizers[0])
        for number, (source, target, *integers) in enumerate(chunk.rows(), start=chunk.first):
            if max(len(source), len(target)) > self.data.max_line_bytes:
                tally[report.TOO_MANY_BYTES, 0] += 1
                continue
            try:
                pair = (
                    decoded(source, f"{text.source.path}:{number}", DROP_HINT),
                    decoded(target, f"{text.target.path}:{number}", DROP_HINT),
                )
            except UserError:
                if self.data.invalid_utf8 == "fail":
                    raise
                tally[report.INVALID, 0] += 1
                continue
            pairs.append(protection.pair(*pair))
            numbers.append(text.before + number)
            columns.append([line.decode(errors="replace") for line in integers])
        sides = [[pair[side] for pair in pairs] for side in range(len(SIDES))]
        sources, targets = (
            tokenizer.lines(lines, noted)
            for tokenizer, lines, noted in zip(self.tokenizers, sides, changes, strict=True)
        )
        some = [i for i, number in enumerate(numbers) if number % REJOINED == 1]
        for side, words in enumerate((sources, targets)):
            tried = ([lines[i] for i in some] for lines in (sides[side], words))
            changes[side].update(_count_rejoined(self.tokenizers[side], *tried))
        sources = [self._without_tag(line, text.tag, changes[0]) for line in sources]
        full = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
        counts: list[Counter[str]] = [Counter(), Counter()]
        if self.count_words:
            counts = [Counter(" ".join(pair[side] for pair in full).split()) for side in (0, 1)]
        symbols = self.tokenizers[0].symbols
        hashes = [hash_pair(*pair, symbols) for pair in zip(sources, targets, strict=True)]
        if text.tag:
            sources = [f"{text.tag} {line}" if line else line for line in sources]
        raw = sides[0] if text.columns else []
        path = self.directory / str(text.before + chunk.first)
        cleaned = [sources, targets], numbers, hashes, raw, columns
        path.write_bytes(json.dumps(cleaned, ensure_ascii=False).encode())
        return CleanedChunk(path, len(pairs), len(full), tally, changes, counts, text.corpus)

    @staticmethod
    def _count_marks(chunk: Chunk) -> list[Counter[str]]:
        """Count what is at the ends of lines and of the file, by side."""
        changes: list[Counter[str]] = [Counter(), Counter()]
        for lines, noted in zip(chunk.lines, changes, strict=False):
            if carriage_returns := sum(line.removesuffix(b"\n").endswith(b"\r") for line in lines):
                noted["crlf_lines"] = carriage_returns
            if chunk.first == 1 and lines[0].startswith(BOM):
                noted["byte_order_mark_lines"] = 1
        return changes

    @staticmethod
    def _without_tag(line: str, tag: str, changes: Counter[str]) -> str:
        """Leave out a tag that the text has already; else it would be there twice."""
        first, _, rest = line.partition(" ")
        if not tag or first != tag:
            return line
        changes[report.TAGGED] += 1
        return rest


class NumberedChunk(NamedTuple):
    """The kept pairs of a chunk; lists in the order of SIDES."""

    ids: list[NDArray[np.uint32]]  # all sequences in a row, each ending in EOS
    lengths: list[NDArray[np.int64]]  # [pair], EOS included
    lines: NDArray[np.uint32]  # [pair]
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    unknown: NDArray[np.bool_]  # [side, pair] whether all its pieces are unknown
    tally: Tally
    columns: dict[str, list[int]]  # all integers in a row, one per source id or per sentence


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
        outcome = np.full(len(text.lines), report.KEPT, np.int64)  # [pair]
        if self.limited:
            longer, shorter = np.maximum(source, target), np.minimum(source, target)
            if self.data.max_ratio is not None:
                outcome[longer > self.data.max_ratio * shorter] = report.UNLIKE
            outcome[longer > self.data.max_length] = report.TOO_LONG
        outcome[np.minimum(source, target) == 0] = report.EMPTY
        kept = np.flatnonzero(outcome == report.KEPT)
        both = zip(self.sides, ids, strict=True)
        return NumberedChunk(
            ids=[
                np.fromiter(chain.from_iterable(side[i] for i in kept), np.uint32) for side in ids
            ],
            lengths=[source[kept] + 1, target[kept] + 1],
            lines=np.array(text.lines, LINES)[kept],
            hashes=np.array(text.hashes, HASHES)[kept],
            unknown=np.array(
                [[s.is_unknown(of_side[i]) for i in kept] for s, of_side in both], bool
            ),
            tally=report.tally_of(source, target, outcome),
            columns=self._columns(text, kept) if self.columns else {},
        )

    def _columns(self, text: CleanedText, kept: NDArray[np.int64]) -> dict[str, list[int]]:
        """Return the columns of the kept pairs; UserError (65) if a line does not fit its text."""
        per, segmenter = columns_of(self.data), self.sides[0].segmenter
        columns: dict[str, list[int]] = {}
        for i in kept:
            lines = {
                name: ColumnLine(per[name], integers, f"{path}:{text.lines[i]}")
                for (name, path), integers in zip(
                    self.columns.items(), text.columns[i], strict=True
                )
            }
            where = next(iter(lines.values())).where
            for name, values in expand(text.raw[i], lines, segmenter, where).items():
                columns.setdefault(name, []).extend(values)
        return columns


def hash_pair(source: str, target: str, symbols: Collection[str]) -> int:
    """Hash the words of a pair, without a symbol as a tag before the source, to 64 bits."""
    first, _, rest = source.partition(" ")
    pair = f"{rest if first in symbols else source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


def _count_rejoined(tokenizer: Tokenizer, lines: list[str], words: list[str]) -> Counter[str]:
    """Count lines without symbols, and those that become another text if words are joined again."""
    both = [
        (normalise(line, tokenizer.normalize), tokenizer.text(of_line))
        for line, of_line in zip(lines, words, strict=True)
        if tokenizer.parts(line) == [line]
    ]
    changed = sum(line != joined for line, joined in both)
    return +Counter({report.REJOINED: len(both), report.OTHERWISE: changed})
