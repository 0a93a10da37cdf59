"""Second pass over a chunk: segment its words, number the pieces, drop what may not stay."""

import hashlib
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data import plain
from nmt.data.clean import RAW, ColumnChunk, read_words, words_file
from nmt.data.columns import ColumnLine, expand
from nmt.data.report import EMPTY, KEPT, TOO_LONG, Tally, tally_of
from nmt.data.side import Side
from nmt.data.store import LINES, SIDES, Ids
from nmt.data.vocab import UNK
from nmt.data.wordids import WordIds


class NumberTask(NamedTuple):
    """A cleaned chunk, and what to do with it."""

    out: Path  # of the first pass
    sides: tuple[Path, Path]  # JSON files
    dtype: "np.dtype[Any]"  # of the ids
    max_length: int | None  # pieces; None keeps every length
    columns: tuple[ColumnChunk, ...] = ()
    known: tuple[Path, Path] | None = None  # ids of frequent words, where words are segmented alone


class NumberedChunk(NamedTuple):
    """The kept pairs of a chunk; tuples in the order of SIDES."""

    ids: tuple[Ids, Ids]  # all sequences in a row, each ending in EOS
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]  # [pair], EOS included
    lines: NDArray[np.uint32]  # [pair]
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    unknown: NDArray[np.int64]  # [side] pieces outside the vocabulary
    tally: Tally
    columns: dict[str, list[int]]  # all integers in a row, beside the source ids or per sentence


def number(task: NumberTask) -> NumberedChunk:
    """Turn the words of a chunk into ids."""
    texts = [words_file(task.out, side).read_bytes().decode(errors="replace") for side in SIDES]
    lines = np.frombuffer(words_file(task.out, "lines").read_bytes(), LINES)
    known = task.known or (None, None)
    numbered = [_ids(*side) for side in zip(texts, task.sides, known, strict=True)]
    source, target = (lengths - 1 for _, lengths in numbered)
    outcome = np.full(len(lines), KEPT, np.int64)  # [pair]
    if task.max_length is not None:
        outcome[np.maximum(source, target) > task.max_length] = TOO_LONG
    outcome[np.minimum(source, target) == 0] = EMPTY
    stays = outcome == KEPT
    rows = [ids[np.repeat(stays, lengths)].astype(task.dtype) for ids, lengths in numbered]
    kept = np.flatnonzero(stays)
    words = [text.split("\n") for text in texts]
    return NumberedChunk(
        ids=(rows[0], rows[1]),
        lengths=(source[kept] + 1, target[kept] + 1),
        lines=lines[kept],
        hashes=np.array([_hash(words[0][i], words[1][i]) for i in kept], np.uint64),
        unknown=np.array([np.count_nonzero(row == UNK) for row in rows]),
        tally=tally_of(source, target, outcome),
        columns=_columns(task, kept, lines),
    )


def _columns(
    task: NumberTask, kept: NDArray[np.int64], lines: NDArray[np.uint32]
) -> dict[str, list[int]]:
    """Give the columns of the kept pairs; UserError (65) where a line is none of its text."""
    if not task.columns:
        return {}
    segmenter = _side(task.sides[0]).segmenter
    text = read_words(task.out, RAW)
    integers = {column: read_words(task.out, f"column.{column.name}") for column in task.columns}
    columns: dict[str, list[int]] = {}
    for i in kept:
        beside = {
            column.name: ColumnLine(column.per, some[i], f"{column.label}:{lines[i]}")
            for column, some in integers.items()
        }
        where = f"{task.columns[0].label}:{lines[i]}"
        for name, values in expand(text[i], beside, segmenter, where).items():
            columns.setdefault(name, []).extend(values)
    return columns


def _hash(source: str, target: str) -> int:
    pair = f"{source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")


def _ids(
    text: str, side: Path, known: Path | None
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int64]]:
    """Give the ids of a chunk's lines in a row, EOS included, and the length of each."""
    if known:
        return _word_ids(side, known).lines(text)
    segmenter, vocabulary = _side(side).segmenter, _side(side).vocabulary
    ids = [vocabulary.ids(segmenter.segment(line)) for line in text.split("\n")[:-1]]
    lengths = np.array([len(line) for line in ids], np.int64)
    return np.fromiter(chain.from_iterable(ids), np.uint32), lengths


@lru_cache(maxsize=4)
def _word_ids(side: Path, known: Path) -> WordIds:
    def make(word: str) -> list[int]:  # the side is read as late as a word needs it
        return _side(side).vocabulary.ids(_side(side).segmenter.segment(word))[:-1]

    return WordIds(known, make)


@lru_cache(maxsize=4)
def _side(path: Path) -> Side:
    return Side.from_json(plain.read_json(path))
