"""The two passes over a chunk of pairs: text becomes words, and words, once learned from, ids.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, columns_of
from nmt.corpus import report
from nmt.corpus.pairs import HASHES, LINES, SIDES, Pairs
from nmt.corpus.report import Counts
from nmt.corpus.scan import Chunk
from nmt.errors import UserError
from nmt.text.columns import ColumnLine, expand
from nmt.text.lines import decode_utf8
from nmt.text.protection import Protection
from nmt.text.side import Sides
from nmt.text.tokenizer import Tokenizer, normalise

SAMPLED = 50  # every so many lines, words are joined to text again
DROP_HINT = "mend the file, or set data.invalid_utf8=drop"


class CleanedPair(NamedTuple):
    """A pair, as the second pass reads it."""

    line: int  # its number
    hash: int  # equal for equal pairs, whatever their tags
    words: list[str]  # of each side, separated by single spaces
    raw: str  # source before it is tokenised, if there are columns: they go by its words
    columns: list[str]  # its line of each


def count_sides() -> list[Counter[str]]:
    return [Counter() for _ in SIDES]


@dataclass
class Counted:
    """Counts of a split, or of a chunk of it, from the first pass."""

    pairs: Counts = field(default_factory=Counter)  # by outcome
    rejoined: Counter[str] = field(default_factory=Counter)  # target lines tried, and changed
    words: list[Counter[str]] = field(default_factory=count_sides)

    def add(self, other: "Counted") -> None:
        self.pairs.update(other.pairs)
        self.rejoined.update(other.rejoined)
        for of_words, of_other in zip(self.words, other.words, strict=True):
            of_words.update(of_other)


class CleanedChunk(NamedTuple):
    """A cleaned chunk, whose pairs are in a file."""

    path: Path
    corpus: str  # which of several it is from
    pairs: int
    full: int  # of the pairs: those with words on both sides
    counted: Counted  # pairs that were dropped, words of the full pairs

    def read(self) -> Iterator[CleanedPair]:
        return starmap(CleanedPair, json.loads(self.path.read_bytes()))


class Cleaning(NamedTuple):
    """The first pass over a split: decode, normalise, tokenise, count words."""

    data: Data
    tokenizers: Sequence[Tokenizer]  # of source and target
    count_words: bool
    directory: Path  # of the cleaned chunks

    def clean(self, chunk: Chunk) -> CleanedChunk:
        """Write the pairs of a chunk; UserError (65) at text that is not UTF-8."""
        text, counted = chunk.text, Counted()
        protection = Protection(self.tokenizers[0])
        pairs = list[CleanedPair]()
        for number, (source, target, *columns) in enumerate(chunk.rows(), start=chunk.first):
            if max(len(source), len(target)) > self.data.max_line_bytes:
                counted.pairs[text.corpus, report.TOO_MANY_BYTES, "pairs"] += 1
                continue
            try:
                pair = (
                    decode_utf8(source, f"{text.source.path}:{number}", DROP_HINT),
                    decode_utf8(target, f"{text.target.path}:{number}", DROP_HINT),
                )
            except UserError:
                if self.data.invalid_utf8 == "fail":
                    raise
                counted.pairs[text.corpus, report.INVALID, "pairs"] += 1
                continue
            pair, line = protection.pair(*pair), text.before + number
            words = [t.words(side) for t, side in zip(self.tokenizers, pair, strict=True)]
            if line % SAMPLED == 1:
                counted.rejoined.update(self._join_again(pair[1], words[1]))
            words[0] = _remove_tag(words[0], text.tag)
            hashed = hash_pair(words[0], words[1], self.tokenizers[0].symbols)
            if text.tag and words[0]:
                words[0] = f"{text.tag} {words[0]}"
            integers = [column.decode(errors="replace") for column in columns]
            pairs.append(CleanedPair(line, hashed, words, pair[0] if columns else "", integers))
        path = self.directory / str(text.before + chunk.first)
        path.write_bytes(json.dumps(pairs, ensure_ascii=False).encode())
        full = [pair.words for pair in pairs if all(pair.words)]
        if self.count_words:  # at once, which is faster than line by line
            sides = zip(*full, strict=True)
            counted.words = [Counter(" ".join(side).split()) for side in sides] or count_sides()
        return CleanedChunk(path, text.corpus, len(pairs), len(full), counted)

    def _join_again(self, text: str, words: str) -> dict[str, int]:
        """Whether a target line is another text once its words are joined; none of symbols."""
        tokenizer = self.tokenizers[1]
        if tokenizer.parts(text) != [text]:
            return {}
        changed = tokenizer.text(words) != normalise(text, tokenizer.normalize)
        return {report.TRIED: 1, report.CHANGED: int(changed)}


def _remove_tag(line: str, tag: str) -> str:
    """Remove a tag that the text begins with, as it would be there twice."""
    first, _, rest = line.partition(" ")
    return rest if tag and first == tag else line


def hash_pair(source: str, target: str, symbols: Collection[str]) -> int:
    """Hash the words of a pair, without a symbol as a tag before the source, to 64 bits."""
    first, _, rest = source.partition(" ")
    pair = f"{rest if first in symbols else source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


class Numbering(NamedTuple):
    """The second pass over a split: segment its words, number the pieces, drop pairs."""

    data: Data
    sides: Sides
    columns: Mapping[str, Path]  # files parallel to the source
    limited: bool  # whether pairs of too many pieces, or of unlike lengths, are dropped

    def number(self, chunk: CleanedChunk) -> tuple[Pairs, NDArray[np.uint64], Counts]:
        """The kept pairs of a chunk as ids; their hashes [pair]; counts of all, by outcome."""
        counts, lines, hashes = Counts(), list[int](), list[int]()
        rows: dict[str, list[list[int]]] = {side: [] for side in SIDES}
        columns: dict[str, list[int]] = {name: [] for name in columns_of(self.data)}
        for pair in chunk.read():
            ids = [
                side.vocabulary.ids(side.segmenter.segment(words))
                for side, words in zip(self.sides, pair.words, strict=True)
            ]
            lengths = [len(of_side) - 1 for of_side in ids]
            outcome = self._decide(*lengths)
            for measure, number in zip(report.MEASURES, (1, *lengths), strict=True):
                counts[chunk.corpus, outcome, measure] += number
            if outcome != report.KEPT:
                continue
            lines.append(pair.line)
            hashes.append(pair.hash)
            for name, of_side in zip(SIDES, ids, strict=True):
                rows[name].append(of_side)
            for name, values in self._expand_columns(pair).items():
                columns[name] += values
        arrays = {name: np.array(values, np.int32) for name, values in columns.items()}
        numbers, dtype = np.array(lines, LINES), np.dtype(np.uint32)
        pairs = Pairs.of_rows(numbers, rows, dtype, columns_of(self.data), arrays)
        return pairs, np.array(hashes, HASHES), counts

    def _decide(self, source: int, target: int) -> str:
        longer, shorter = max(source, target), min(source, target)
        if not shorter:
            return report.EMPTY
        if self.limited and longer > self.data.max_length:
            return report.TOO_LONG
        if self.limited and self.data.max_ratio and longer > self.data.max_ratio * shorter:
            return report.UNLIKE
        return report.KEPT

    def _expand_columns(self, pair: CleanedPair) -> dict[str, list[int]]:
        """Return the columns of a pair; UserError (65) if a line does not fit its text."""
        if not self.columns:
            return {}
        per = columns_of(self.data)
        files = zip(self.columns.items(), pair.columns, strict=True)
        lines = {
            name: ColumnLine(per[name], integers, f"{path}:{pair.line}")
            for (name, path), integers in files
        }
        where = next(iter(lines.values())).where
        return expand(pair.raw, lines, self.sides[0].segmenter, where)
