"""Texts out of archives: the named members alone, streamed into files of our own naming.

Archives are pinned by SHA-256, so that each is whole and known. Nothing is ever extracted by the
names that it holds.
"""

import gzip
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from nmt.errors import Exit, UserError
from nmt.text.lines import BOM


def take_pairs(path: Path, sides: Sequence[tuple[Sequence[str], Path]]) -> int:
    """Write members of a tar or zip archive to files, and return the lines of one side.

    A side is the names that its member may have, and its file; source and target take turns. A
    line ends at LF; the last one gets its LF, and a byte order mark at the start goes. Raises
    UserError (65) for a missing member, and for a pair that differs in its number of lines.
    """
    copied: dict[Path, tuple[str, int]] = {}  # file -> name of its member, lines
    for name, opener in _members(path):
        for names, file in sides:
            if name in names and file not in copied:
                copied[file] = name, _copy(opener(), file)
                break
        if len(copied) == len(sides):
            break
    if missing := [names for names, file in sides if file not in copied]:
        raise UserError(f"{path}: has no member {' or '.join(missing[0])}", Exit.DATA)
    counts = [copied[file] for _, file in sides]
    for (source, lines), (target, others) in zip(counts[::2], counts[1::2], strict=True):
        if lines != others:
            raise UserError(
                f"{path}: {source} has {lines} lines, {target} has {others}; "
                "the two must be parallel",
                Exit.DATA,
            )
    return sum(lines for _, lines in counts[::2])


def take_columns(path: Path, swapped: bool, outs: Sequence[Path]) -> tuple[int, int]:
    """Write the first two columns of a compressed TSV to files, source and target.

    `swapped`: the target is the first column. More columns may follow. Rows with a blank side
    are borders of documents; they are dropped. Returns how many rows were kept and dropped.
    """
    kept = dropped = 0
    source, target = outs
    first, second = (target, source) if swapped else (source, target)
    with gzip.open(path) as rows, first.open("wb") as firsts, second.open("wb") as seconds:
        for number, row in enumerate(rows):
            cells = (row if number else row.removeprefix(BOM)).rstrip(b"\r\n").split(b"\t")
            if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
                dropped += 1
                continue
            firsts.write(cells[0] + b"\n")
            seconds.write(cells[1] + b"\n")
            kept += 1
    return kept, dropped


def _members(path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name of each file in an archive, and what opens it before the next name is requested."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, partial(archive.open, info)
        return
    with tarfile.open(path, "r|gz") as stream:
        for entry in stream:
            if entry.isreg():
                yield entry.name.removeprefix("./"), partial(stream.extractfile, entry)


def _copy(member: IO[bytes], out: Path) -> int:
    """Write the text of a member to a file, and return its lines."""
    lines = 0
    with member, out.open("wb") as file:
        for line in member:
            file.write((line if lines else line.removeprefix(BOM)).removesuffix(b"\n") + b"\n")
            lines += 1
    return lines
