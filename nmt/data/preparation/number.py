"""Second pass over a chunk: segment its words, number the pieces, drop long and empty pairs."""

import hashlib
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.columns import ColumnLine, expand
from nmt.data.preparation.clean import RAW, column_file, read_words
from nmt.data.preparation.wordids import WordIds
from nmt.data.report import EMPTY, KEPT, TOO_LONG, UNLIKE, Tally, tally_of
from nmt.data.side import Side
from nmt.data.store import LINES, SIDES, Ids
from nmt.data.vocab import UNK
from nmt.storage import manifest


class NumberedChunk(NamedTuple):
    """The kept pairs of a chunk; tuples in the order of SIDES."""

    ids: tuple[Ids, Ids]  # all sequences in a row, each ending in EOS
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]  # [pair], EOS included
    lines: NDArray[np.uint32]  # [pair]
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    unknown: NDArray[np.int64]  # [side] pieces outside the vocabulary
    tally: Tally
    columns: dict[str, list[int]]  # all integers in a row, one per source id or per sentence


class Numbering(NamedTuple):
    """Settings of the second pass: how the words of cleaned chunks become ids."""

    sides: Path  # directory with source.json and target.json
    words: Path | None  # directory with ids of frequent words, where words are segmented alone
    dtype: "np.dtype[Any]"  # of the ids
    max_length: int | None  # pieces; None keeps every length
    max_ratio: float | None  # of the lengths of the sides; None keeps every ratio
    columns: dict[str, Path]  # files parallel to the source
    per: dict[str, str]  # name of a column -> word or sentence

    def number(self, chunk: Path) -> NumberedChunk:
        """Turn the words of a chunk into ids."""
        texts = [(chunk / side).read_bytes().decode(errors="replace") for side in SIDES]
        lines = np.frombuffer((chunk / "lines").read_bytes(), LINES)
        numbered = [self._ids(side, text) for side, text in zip(SIDES, texts, strict=True)]
        source, target = (lengths - 1 for _, lengths in numbered)
        outcome = np.full(len(lines), KEPT, np.int64)  # [pair]
        if self.max_ratio is not None:
            longer, shorter = np.maximum(source, target), np.minimum(source, target)
            outcome[longer > self.max_ratio * shorter] = UNLIKE
        if self.max_length is not None:
            outcome[np.maximum(source, target) > self.max_length] = TOO_LONG
        outcome[np.minimum(source, target) == 0] = EMPTY
        stays = outcome == KEPT
        rows = [ids[np.repeat(stays, lengths)].astype(self.dtype) for ids, lengths in numbered]
        kept = np.flatnonzero(stays)
        words = [text.split("\n") for text in texts]
        return NumberedChunk(
            ids=(rows[0], rows[1]),
            lengths=(source[kept] + 1, target[kept] + 1),
            lines=lines[kept],
            hashes=np.array([_hash(words[0][i], words[1][i]) for i in kept], np.uint64),
            unknown=np.array([np.count_nonzero(row == UNK) for row in rows]),
            tally=tally_of(source, target, outcome),
            columns=self._columns(chunk, kept, lines) if self.columns else {},
        )

    def _ids(self, name: str, text: str) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
        """Return the ids of a chunk's lines in a row, EOS included, and the length of each."""
        path = self.sides / f"{name}.json"
        if self.words:
            return _word_ids(path, self.words / f"{name}.words").lines(text)
        side = _side(path)
        ids = [side.vocabulary.ids(side.segmenter.segment(line)) for line in text.split("\n")[:-1]]
        lengths = np.array([len(line) for line in ids], np.int64)
        return np.fromiter(chain.from_iterable(ids), np.uint32), lengths

    def _columns(
        self, chunk: Path, kept: NDArray[np.int64], lines: NDArray[np.uint32]
    ) -> dict[str, list[int]]:
        """Return the columns of the kept pairs; UserError (65) if a line does not fit its text."""
        segmenter = _side(self.sides / "source.json").segmenter
        text = read_words(chunk, RAW)
        integers = {name: read_words(chunk, column_file(name)) for name in self.columns}
        columns: dict[str, list[int]] = {}
        for i in kept:
            lines_of_columns = {
                name: ColumnLine(self.per[name], values[i], f"{self.columns[name]}:{lines[i]}")
                for name, values in integers.items()
            }
            where = f"{next(iter(self.columns.values()))}:{lines[i]}"
            for name, values in expand(text[i], lines_of_columns, segmenter, where).items():
                columns.setdefault(name, []).extend(values)
        return columns


def _hash(source: str, target: str) -> int:
    pair = f"{source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


@lru_cache(maxsize=4)
def _word_ids(side: Path, words: Path) -> WordIds:
    def make(word: str) -> list[int]:  # the side is read as late as a word needs it
        return _side(side).vocabulary.ids(_side(side).segmenter.segment(word))[:-1]

    return WordIds(words, make)


@lru_cache(maxsize=4)
def _side(path: Path) -> Side:
    return Side.from_json(manifest.read(path, None))
