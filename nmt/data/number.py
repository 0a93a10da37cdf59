"""Second pass over a chunk: segment its words, number the pieces, drop what may not stay."""

import hashlib
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data import plain
from nmt.data.bpe import Bpe
from nmt.data.clean import RAW, Column, read_words, words_file
from nmt.data.columns import Beside, expand
from nmt.data.report import EMPTY, KEPT, TOO_LONG, Tally, tally_of
from nmt.data.side import Side
from nmt.data.store import LINES, SIDES, Ids, id_type
from nmt.data.vocab import UNK


class Number(NamedTuple):
    """A cleaned chunk, and what to do with it."""

    out: Path  # of the first pass
    sides: tuple[Path, Path]  # JSON files
    max_length: int | None  # pieces; None keeps every length
    columns: tuple[Column, ...] = ()
    known: tuple[Path, Path] | None = None  # pieces of frequent words, for `Bpe.remember`


class Numbered(NamedTuple):
    """The kept pairs of a chunk; tuples in the order of SIDES."""

    ids: tuple[Ids, Ids]  # all sequences in a row, each ending in EOS
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]  # [pair], EOS included
    lines: NDArray[np.uint32]  # [pair]
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    unknown: NDArray[np.int64]  # [side] pieces outside the vocabulary
    tally: Tally
    columns: dict[str, list[int]]  # all integers in a row, beside the source ids or per sentence


def number(task: Number) -> Numbered:
    """Turn the words of a chunk into ids."""
    words = [read_words(task.out, side) for side in SIDES]
    lines = np.frombuffer(words_file(task.out, "lines").read_bytes(), LINES)
    sides = [
        _side(path, known)
        for path, known in zip(task.sides, task.known or (None, None), strict=True)
    ]
    ids = [
        [side.vocabulary.ids(side.segmenter.segment(text)) for text in texts]
        for side, texts in zip(sides, words, strict=True)
    ]
    source, target = (np.array([len(one) - 1 for one in some], np.int64) for some in ids)
    outcome = np.full(len(lines), KEPT, np.int64)  # [pair]
    if task.max_length is not None:
        outcome[np.maximum(source, target) > task.max_length] = TOO_LONG
    outcome[np.minimum(source, target) == 0] = EMPTY
    kept = np.flatnonzero(outcome == KEPT)
    dtype = id_type(*(len(side.vocabulary) for side in sides))
    rows = tuple(np.fromiter(chain.from_iterable(some[i] for i in kept), dtype) for some in ids)
    return Numbered(
        ids=(rows[0], rows[1]),
        lengths=(source[kept] + 1, target[kept] + 1),
        lines=lines[kept],
        hashes=np.array([_hash(words[0][i], words[1][i]) for i in kept], np.uint64),
        unknown=np.array([np.count_nonzero(row == UNK) for row in rows]),
        tally=tally_of(source, target, outcome),
        columns=_columns(task, sides[0], kept, lines),
    )


def _columns(
    task: Number, side: Side, kept: NDArray[np.int64], lines: NDArray[np.uint32]
) -> dict[str, list[int]]:
    """Give the columns of the kept pairs; UserError (65) where a line is none of its text."""
    if not task.columns:
        return {}
    text = read_words(task.out, RAW)
    integers = {column: read_words(task.out, f"column.{column.name}") for column in task.columns}
    found: dict[str, list[int]] = {}
    for i in kept:
        beside = {
            column.name: Beside(column.per, some[i], f"{column.label}:{lines[i]}")
            for column, some in integers.items()
        }
        where = f"{task.columns[0].label}:{lines[i]}"
        for name, values in expand(text[i], beside, side.segmenter, where).items():
            found.setdefault(name, []).extend(values)
    return found


def _hash(source: str, target: str) -> int:
    both = f"{source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(both, digest_size=8).digest(), "little")


@lru_cache(maxsize=4)
def _side(path: Path, known: Path | None) -> Side:
    side = Side.from_json(plain.read_json(path))
    if known and isinstance(side.segmenter, Bpe):
        side.segmenter.remember(known)
    return side
