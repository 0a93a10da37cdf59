"""First pass over a chunk of pairs: decode, normalise, tokenise, count words.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt.data.corpus import RawLine, decoded, raw_lines
from nmt.data.preparation.scan import Chunk
from nmt.data.protection import Protection
from nmt.data.report import HELD, INVALID, NOT_SEGMENTED, TOO_MANY_BYTES, Tally, no_tally
from nmt.data.store import LINES, SIDES
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError

RAW = "raw"  # the source text, before it is tokenised: columns go by its words
DROP_HINT = "mend the file, or set data.invalid_utf8=drop"


class CleanedChunk(NamedTuple):
    """A cleaned chunk, whose words are in files. Sequences are in the order of SIDES."""

    path: Path  # directory with files source, target, lines and the columns, see `read_words`
    pairs: int
    tally: Tally  # pairs dropped here
    changes: Sequence[Counter[str]]
    words: Sequence[Counter[str]]
    corpus: str  # which of several it is from


class Cleaning(NamedTuple):
    """Settings of the first pass: how chunks of parallel files are cleaned. Sides as in SIDES."""

    names: tuple[str, str]  # what to call the files in messages
    columns: tuple[str, ...]  # their names
    tokenizers: tuple[tuple[Any, ...], ...]  # arguments of Tokenizer
    drop_invalid: bool
    max_bytes: int
    count_words: bool
    directory: Path  # of the cleaned chunks
    prefix: str  # of their names
    corpus: str  # name of one of several, or ""
    tag: str  # put before each source
    before: int  # numbers of lines before the first of these files

    def clean(self, chunk: Chunk) -> CleanedChunk:
        """Write a chunk's words and line numbers; UserError (65) at text that is not UTF-8."""
        directory = self.directory / f"{self.prefix}-{chunk.number:06d}"
        directory.mkdir()
        tally, kept = no_tally(), list[int]()
        changes: list[Counter[str]] = [Counter(), Counter()]
        texts: list[list[str]] = [[], []]
        names = [*map(column_file, self.columns), RAW] if self.columns else []
        columns: dict[str, list[bytes]] = {name: [] for name in names}
        protection = Protection(_tokenizer(*self.tokenizers[0]))
        files = [raw_lines(lines, first=chunk.numbers[0] == 1) for lines in chunk.lines]
        for number, source, target, *integers in zip(chunk.numbers, *files, strict=True):
            if number in chunk.held:
                tally[NOT_SEGMENTED, HELD, 0] += 1
                continue
            pair = (source, target)
            for line, noted in zip(pair, changes, strict=True):
                _note(line, noted)
            if max(len(line.raw) for line in pair) > self.max_bytes:
                tally[NOT_SEGMENTED, TOO_MANY_BYTES, 0] += 1
                continue
            try:
                text = [
                    decoded(line.raw, f"{name}:{number}", DROP_HINT)
                    for line, name in zip(pair, self.names, strict=True)
                ]
            except UserError:
                if not self.drop_invalid:
                    raise
                tally[NOT_SEGMENTED, INVALID, 0] += 1
                continue
            kept.append(self.before + number)
            text = list(protection.pair(*text))
            source = source._replace(raw=text[0].encode())
            for name, line in zip(columns, (*integers, source), strict=bool(columns)):
                columns[name].append(line.raw)
            for lines, line_of_side in zip(texts, text, strict=True):
                lines.append(line_of_side)
        tokenised = [
            _tokenizer(*arguments).lines(lines, noted)
            for arguments, lines, noted in zip(self.tokenizers, texts, changes, strict=True)
        ]
        words = _count_words(tokenised) if self.count_words else [Counter(), Counter()]
        if self.tag:
            tokenised[0] = [f"{self.tag} {line}" if line else line for line in tokenised[0]]
        for name, lines in zip(SIDES, tokenised, strict=True):
            (directory / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        for name, raw in columns.items():
            (directory / name).write_bytes(b"".join(line + b"\n" for line in raw))
        (directory / "lines").write_bytes(np.array(kept, LINES).tobytes())
        return CleanedChunk(directory, len(kept), tally, changes, words, self.corpus)


def column_file(name: str) -> str:
    """Return the name of the file that has the lines of a column in a cleaned chunk."""
    return f"column.{name}"


def read_words(chunk: Path, name: str) -> list[str]:
    """Read the words of one side of a cleaned chunk (or a column, or RAW), one string a line."""
    return (chunk / name).read_bytes().decode(errors="replace").split("\n")[:-1]


def _count_words(tokenised: list[list[str]]) -> list[Counter[str]]:
    """Count the words of both sides, in pairs that have words on both."""
    pairs = [pair for pair in zip(*tokenised, strict=True) if all(pair)]
    return [Counter(" ".join(pair[side] for pair in pairs).split()) for side in range(len(SIDES))]


def _note(line: RawLine, changes: Counter[str]) -> None:
    if line.crlf:
        changes["crlf_lines"] += 1
    if line.bom:
        changes["byte_order_mark_lines"] += 1


@lru_cache(maxsize=4)
def _tokenizer(*arguments: Any) -> Tokenizer:
    return Tokenizer(*arguments)
