"""First pass over a chunk of pairs: decode, normalise, tokenise, count words.

The words go to files between the passes, so that the slow tokenizer runs once.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.data import stages
from nmt.data.corpus import RawLine, decoded, opened, raw_lines
from nmt.data.report import INVALID, NOT_SEGMENTED, TOO_MANY_BYTES, Tally, no_tally
from nmt.data.store import LINES, SIDES
from nmt.data.tokenizer import Tokenizer
from nmt.errors import Exit, UserError

RAW = "raw"  # the source text as it was read: columns go by its words
DROP_HINT = "mend the file, or set data.invalid_utf8=drop"


class CleanTask(NamedTuple):
    """A chunk of two parallel files, and what to do with it; sides in the order of SIDES."""

    paths: tuple[Path, Path]  # where to read, at any offset
    names: tuple[str, str]  # what to call the files in messages
    starts: tuple[int, int]  # byte offsets
    line: int  # number of the first line, from 1
    lines: int
    tokenizers: tuple[tuple[str, str, str], tuple[str, str, str]]  # arguments of Tokenizer
    drop_invalid: bool
    max_bytes: int
    count_words: bool
    out: Path  # the files written begin with this
    columns: tuple["ColumnChunk", ...] = ()


class ColumnChunk(NamedTuple):
    """A file of integers beside the source."""

    name: str
    per: str  # word or sentence
    path: Path  # where to read, at any offset
    label: str  # what to call the file in messages
    start: int  # byte offset of the chunk


class CleanedChunk(NamedTuple):
    """What a cleaned chunk holds; the words themselves are in files."""

    out: Path
    pairs: int
    tally: Tally  # pairs dropped here
    changes: tuple[Counter[str], Counter[str]]
    words: tuple[Counter[str], Counter[str]]


def clean(task: CleanTask) -> CleanedChunk:
    """Write a chunk's words and line numbers, unless a preparation that was stopped had done so.

    UserError (65) at text that is not UTF-8.
    """
    names = [f"column.{column.name}" for column in task.columns]
    names = [*SIDES, *names, *([RAW] if names else []), "lines"]
    files = [words_file(task.out, name) for name in names]
    record = words_file(task.out, stages.DONE.removeprefix("."))
    if (kept := stages.kept(record, files)) is not None:
        pairs, tally, changes, words = kept
        both = ((Counter(one), Counter(other)) for one, other in (changes, words))
        return CleanedChunk(task.out, pairs, np.array(tally, np.int64), *both)
    chunk = _cleaned(task)
    stages.keep(record, (chunk.pairs, chunk.tally.tolist(), chunk.changes, chunk.words), files)
    return chunk


def _cleaned(task: CleanTask) -> CleanedChunk:
    """Write a chunk's words and line numbers."""
    tokenizers = [_tokenizer(*arguments) for arguments in task.tokenizers]
    changes: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    words: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    tally, kept = no_tally(), []
    texts: tuple[list[str], list[str]] = ([], [])
    names = [f"column.{column.name}" for column in task.columns]
    beside: dict[str, list[bytes]] = {name: [] for name in (*names, RAW) if names}
    for number, (source, target, *columns) in _lines(task):
        pair = (source, target)
        for line, noted in zip(pair, changes, strict=True):
            _note(line, noted)
        if max(len(line.raw) for line in pair) > task.max_bytes:
            tally[NOT_SEGMENTED, TOO_MANY_BYTES, 0] += 1
            continue
        try:
            text = [
                decoded(line.raw, f"{name}:{number}", DROP_HINT)
                for line, name in zip(pair, task.names, strict=True)
            ]
        except UserError:
            if not task.drop_invalid:
                raise
            tally[NOT_SEGMENTED, INVALID, 0] += 1
            continue
        kept.append(number)
        for name, line in zip(beside, (*columns, source), strict=bool(beside)):
            beside[name].append(line.raw)
        for lines, line_of_side in zip(texts, text, strict=True):
            lines.append(line_of_side)
    tokenised = [
        tokenizer.lines(lines, noted)
        for tokenizer, lines, noted in zip(tokenizers, texts, changes, strict=True)
    ]
    if task.count_words:
        for counts, lines in zip(words, tokenised, strict=True):
            whole_pairs = [line for line, *pair in zip(lines, *tokenised, strict=True) if all(pair)]
            counts.update(" ".join(whole_pairs).split())
    for name, lines in zip(SIDES, tokenised, strict=True):
        words_file(task.out, name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    for name, raw in beside.items():
        words_file(task.out, name).write_bytes(b"".join(line + b"\n" for line in raw))
    words_file(task.out, "lines").write_bytes(np.array(kept, LINES).tobytes())
    return CleanedChunk(task.out, len(kept), tally, changes, words)


def words_file(out: Path, what: str) -> Path:
    """Give the file that holds a chunk's source or target words, or its line numbers."""
    return out.with_name(f"{out.name}.{what}")


def read_words(out: Path, side: str) -> list[str]:
    """Read the words of one side of a cleaned chunk (or a column, or RAW), one string a line."""
    return words_file(out, side).read_bytes().decode(errors="replace").split("\n")[:-1]


def _lines(task: CleanTask) -> Iterator[tuple[int, tuple[RawLine, ...]]]:
    """Yield the number of each line, and the lines of source, target and columns."""
    paths = [*task.paths, *(column.path for column in task.columns)]
    starts = [*task.starts, *(column.start for column in task.columns)]
    with ExitStack() as stack:
        streams = [stack.enter_context(opened(path)) for path in paths]
        for stream, start in zip(streams, starts, strict=True):
            stream.seek(start)
        first = task.line == 1
        rows = zip(*(raw_lines(s, first, task.lines) for s in streams), strict=False)
        number = task.line - 1
        for number, lines in enumerate(rows, start=task.line):
            yield number, lines
    if number != task.line + task.lines - 1:
        names = [*task.names, *(column.label for column in task.columns)]
        raise UserError(
            f"{', '.join(names)}: changed while they were read; start again",
            Exit.DATA,
        )


def _note(line: RawLine, changes: Counter[str]) -> None:
    if line.crlf:
        changes["crlf_lines"] += 1
    if line.bom:
        changes["byte_order_mark_lines"] += 1


@lru_cache(maxsize=4)
def _tokenizer(normalize: str, kind: str, language: str) -> Tokenizer:
    return Tokenizer(normalize, kind, language)
