"""Texts out of archives: the named members alone, streamed into files of our own naming.

Nothing is ever extracted by the names that an archive holds, so that `../evil`, absolute names,
links and devices have nowhere to go; and each member ends at its cap, so that a bomb does, too.
"""

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from nmt.data.corpus import BOM
from nmt.errors import Exit, UserError

BLOCK = 1 << 20  # bytes read at once
LONGEST = 1 << 24  # bytes of a row of a TSV; a longer one is no row
NEAR = 5  # names of an archive that a message shows
SYMLINK = 0o120000  # of the upper half of external_attr in zip archives


class Member(NamedTuple):
    """An entry of an archive."""

    name: str
    regular: bool  # no link, directory or device
    open: Callable[[], IO[bytes] | None]


def take_pairs(path: Path, sides: Sequence[tuple[Sequence[str], Path]], cap: int) -> int:
    """Write members of a tar or zip archive to files, and return the lines of one side.

    A side is the names that its member may have, and its file; source and target take turns. A
    line ends at LF; the last one gets its LF, and a byte order mark at the start goes. Raises
    UserError (65) for a missing member, one that is no plain file or has more than `cap` bytes, a
    damaged archive, and a pair that differs in its number of lines.
    """
    taken: dict[Path, tuple[str, int]] = {}  # file -> name of its member, lines
    names_seen = []
    with _sound(path):
        for member in _members(path):
            names_seen.append(member.name)
            for names, file in sides:
                if member.name in names and file not in taken:
                    taken[file] = member.name, _copy(member, file, cap, path)
                    break
            if len(taken) == len(sides):
                break
    if missing := [names for names, file in sides if file not in taken]:
        near = get_close_matches(missing[0][0], names_seen, NEAR, 0.3) or sorted(names_seen)[:NEAR]
        hint = f"near are {', '.join(near)}" if near else "it is empty"
        raise UserError(f"{path}: has no member {' or '.join(missing[0])}; {hint}", Exit.DATA)
    counts = [taken[file] for _, file in sides]
    for (source, lines), (target, others) in zip(counts[::2], counts[1::2], strict=True):
        if lines != others:
            raise UserError(
                f"{path}: {source} has {lines} lines, {target} has {others}; "
                "the two must be parallel",
                Exit.DATA,
            )
    return sum(lines for _, lines in counts[::2])


def take_columns(path: Path, swapped: bool, outs: Sequence[Path], cap: int) -> tuple[int, int]:
    """Write the first two columns of a compressed TSV to files, source and target.

    `swapped`: the target is the first column. More columns may follow. Rows with a blank side
    are borders of documents; they are dropped. Returns how many rows were kept and dropped. Raises
    UserError (65) for more than `cap` bytes in all, or a damaged file.
    """
    read = kept = dropped = 0
    source, target = outs
    first, second = (target, source) if swapped else (source, target)
    with (
        _sound(path),
        gzip.open(path) as rows,
        first.open("wb") as first_file,
        second.open("wb") as second_file,
    ):
        while row := rows.readline(LONGEST):
            if read == 0:
                row = row.removeprefix(BOM)
            read += len(row)
            if len(row) == LONGEST or read > cap:
                raise _too_much(path, path.name, cap)
            cells = row.rstrip(b"\r\n").split(b"\t")
            if len(cells) < 2 or not cells[0].strip() or not cells[1].strip():
                dropped += 1
                continue
            first_file.write(cells[0] + b"\n")
            second_file.write(cells[1] + b"\n")
            kept += 1
    return kept, dropped


def _members(path: Path) -> Iterator[Member]:
    """The entries of an archive, in their order; each is to be read before the next."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                link = info.external_attr >> 16 & 0o170000 == SYMLINK
                regular = not link and not info.is_dir()
                yield Member(info.filename, regular, partial(archive.open, info))
        return
    with tarfile.open(path, "r|gz") as stream:
        for entry in stream:
            name, opener = entry.name.removeprefix("./"), partial(stream.extractfile, entry)
            yield Member(name, entry.isreg(), opener)


def _copy(member: Member, out: Path, cap: int, path: Path) -> int:
    """Write the text of a member to a file, and return its lines."""
    stream = member.open() if member.regular else None
    if stream is None:
        raise UserError(
            f"{path}: {member.name}: a link, directory or device, no plain file", Exit.DATA
        )
    size = lines = 0
    last = b"\n"
    with stream, out.open("wb") as file:
        block = stream.read(BLOCK).removeprefix(BOM)
        while block:
            size += len(block)
            if size > cap:
                raise _too_much(path, member.name, cap)
            file.write(block)
            lines += block.count(b"\n")
            last = block[-1:]
            block = stream.read(BLOCK)
        if last != b"\n":
            file.write(b"\n")
            lines += 1
    return lines


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises into a UserError (65)."""
    try:
        yield
    except RecursionError:
        raise
    except (
        *(EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile),
        NotImplementedError,  # a compression or version that zipfile does not know
        RuntimeError,  # an encrypted member
    ) as error:
        raise UserError(f"{path}: damaged archive ({error}); fetch it again", Exit.DATA) from None


def _too_much(path: Path, name: str, cap: int) -> UserError:
    return UserError(
        f"{path}: {name}: more than the {cap} bytes that the lock file allows, or a row of more "
        f"than {LONGEST}; this is another text",
        Exit.DATA,
    )
