"""The first look at a corpus: is it there, is it parallel, which hash, where do its lines start."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from nmt import config
from nmt.data.corpus import opened, side_file
from nmt.data.store import SIDES
from nmt.errors import Exit, UserError

BLOCK = 2**20  # bytes read at once
SPLITS = ("train", "dev")
CHUNK = 5000  # lines that one worker takes at once


class Scan(NamedTuple):
    """What one pass over a file shows; of .gz it is the decompressed text that counts."""

    path: Path
    sha256: str
    lines: int
    starts: list[int]  # byte offset of every CHUNK-th line, and the end of the file


def scan(path: Path, hint: str = "check the path") -> Scan:
    """Hash a text file and find its lines; UserError if it is missing, damaged or empty."""
    digest, size, lines, ended = hashlib.sha256(), 0, 0, True
    starts = [0]
    with opened(path, hint) as stream:
        for block in _blocks(stream):
            digest.update(block)
            feeds = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            # the k-th feed of this block ends line number lines + k + 1
            first = CHUNK - 1 - lines % CHUNK
            starts += [size + int(feed) + 1 for feed in feeds[first::CHUNK]]
            lines += len(feeds)
            size += len(block)
            ended = block.endswith(b"\n")
    lines += not ended
    if not lines:
        raise UserError(f"{path}: is empty; {hint}", Exit.DATA)
    if starts[-1] != size:
        starts.append(size)
    return Scan(path, digest.hexdigest(), lines, starts)


def check_parallel(source: Scan, target: Scan) -> None:
    """Raise UserError (65) if two files differ in their number of lines."""
    if source.lines != target.lines:
        raise UserError(
            f"{source.path}: {source.lines} lines, {target.path}: {target.lines}; "
            "the two must be parallel",
            Exit.DATA,
        )


class Chunk(NamedTuple):
    """Consecutive lines of parallel files."""

    number: int
    line: int  # number of its first line, from 1
    lines: int
    starts: tuple[int, ...]  # byte offset in each file


class ParallelText(NamedTuple):
    """Two parallel files, and the columns of the source, after their scan."""

    source: Scan
    target: Scan
    columns: dict[str, Scan]  # by name

    @property
    def files(self) -> list[Scan]:
        """Source, target and columns."""
        return [self.source, self.target, *self.columns.values()]

    def chunks(self) -> Iterator[Chunk]:
        """Yield the parts of at most CHUNK lines."""
        starts = zip(*(file.starts[:-1] for file in self.files), strict=True)
        for number, offsets in enumerate(starts):
            before = number * CHUNK
            yield Chunk(number, before + 1, min(CHUNK, self.source.lines - before), offsets)


def scan_files(data: config.Data) -> dict[str, ParallelText]:
    """Scan the training and development files of a corpus, where it has any."""
    texts: dict[str, ParallelText] = {}
    if not isinstance(data, config.Files):
        return texts
    for split in SPLITS:
        instead = "" if split == "train" else "; or hold out training text: data.dev_lines=N"
        source, target = (
            scan(side_file(getattr(data, key), f"set data.root or data.{key}{instead}"))
            for key in (f"{split}_{side}" for side in SIDES)
        )
        check_parallel(source, target)
        columns = {
            name: scan(Path(getattr(files, split)), f"set data.columns.{name}.{split}")
            for name, files in data.columns.items()
        }
        for column in columns.values():
            check_parallel(column, source)
        texts[split] = ParallelText(source, target, columns)
    return texts


def unpacked(text: Scan, directory: Path) -> Path:
    """Give a path where the scanned text can be read at any offset: .gz is decompressed."""
    if text.path.suffix != ".gz":
        return text.path
    path = directory / f"{text.sha256[:16]}.txt"
    with opened(text.path) as stream, path.open("wb") as out:
        for block in _blocks(stream):
            out.write(block)
    return path


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    while block := stream.read(BLOCK):
        yield block
