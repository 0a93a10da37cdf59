"""Second pass over a chunk: segment its words, number the pieces, drop long and empty pairs."""

import hashlib
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data, columns_of
from nmt.corpus.clean import CleanedText
from nmt.corpus.pairs import LINES
from nmt.corpus.report import EMPTY, KEPT, TOO_LONG, UNLIKE, Tally, tally_of
from nmt.text.columns import ColumnLine, expand
from nmt.text.side import Sides


class NumberedChunk(NamedTuple):
    """The kept pairs of a chunk; lists in the order of SIDES."""

    ids: list[NDArray[np.uint32]]  # all sequences in a row, each ending in EOS
    lengths: list[NDArray[np.int64]]  # [pair], EOS included
    lines: NDArray[np.uint32]  # [pair]
    hashes: NDArray[np.uint64]  # [pair] equal for equal pairs
    tally: Tally
    columns: dict[str, list[int]]  # all integers in a row, one per source id or per sentence


class Numbering(NamedTuple):
    """The second pass over the text of a split."""

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
        outcome = np.full(len(text.lines), KEPT, np.int64)  # [pair]
        if self.limited:
            longer, shorter = np.maximum(source, target), np.minimum(source, target)
            if self.data.max_ratio is not None:
                outcome[longer > self.data.max_ratio * shorter] = UNLIKE
            outcome[longer > self.data.max_length] = TOO_LONG
        outcome[np.minimum(source, target) == 0] = EMPTY
        kept = np.flatnonzero(outcome == KEPT)
        return NumberedChunk(
            ids=[
                np.fromiter(chain.from_iterable(side[i] for i in kept), np.uint32) for side in ids
            ],
            lengths=[source[kept] + 1, target[kept] + 1],
            lines=np.array(text.lines, LINES)[kept],
            hashes=np.array([_hash(*(side[i] for side in text.words)) for i in kept], np.uint64),
            tally=tally_of(source, target, outcome),
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


def _hash(source: str, target: str) -> int:
    pair = f"{source}\n{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")
