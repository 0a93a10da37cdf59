"""TextFacts out of archives: the named members alone, streamed into files of our own naming.

Nothing is ever extracted by the names that an archive holds, so that `../evil`, absolute names,
links and devices have nowhere to go; and each member ends at its cap, so that a bomb does, too.
"""

import gzip
import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, NamedTuple

from nmt.data.corpus import BOM
from nmt.errors import Exit, UserError

BLOCK = 1 << 20  # bytes read at once
LONGEST = 1 << 24  # bytes of a row of a TSV; a longer one is no row
NEAR = 5  # names of an archive that a message shows
SYMLINK = 0o120000  # of the upper half of external_attr in zip archives


class TextFacts(NamedTuple):
    """What one side of a corpus holds."""

    lines: int
    size: int  # bytes
    sha256: str


class SidesFacts(NamedTuple):
    """What was taken out of an archive."""

    source: TextFacts
    target: TextFacts
    dropped: int  # rows of a TSV with a blank side: borders of documents


def take_pairs(
    path: Path,
    kind: str,
    pairs: Sequence[tuple[Sequence[str], Sequence[str]]],
    outs: Sequence[tuple[Path, Path]],
    cap: int,
) -> list[SidesFacts]:
    """Write pairs of members (the names each may have) of a tar or zip archive to files.

    A line is what ends with LF; the last one gets its LF, and a byte order mark at the start goes.
    Raises UserError (65) for a missing member, one that is no plain file or has more than `cap`
    bytes, a damaged archive, and a pair that differs in its number of lines.
    """
    targets = {
        tuple(names): out
        for pair, both in zip(pairs, outs, strict=True)
        for names, out in zip(pair, both, strict=True)
    }
    with _sound(path):
        texts = (_tar if kind == "tar.gz" else _zip)(path, targets, cap)
    sides = []
    for source, target in pairs:
        (name, text), (other, beside) = texts[tuple(source)], texts[tuple(target)]
        if text.lines != beside.lines:
            raise UserError(
                f"{path}: {name} has {text.lines} lines, {other} has {beside.lines}; "
                "the two must be parallel",
                Exit.DATA,
            )
        sides.append(SidesFacts(text, beside, 0))
    return sides


def take_columns(path: Path, swapped: bool, outs: tuple[Path, Path], cap: int) -> SidesFacts:
    """Write the first two columns of a compressed TSV to files, source and target.

    `swapped`: the target is the first column. More columns may follow. Rows with a blank side
    are borders of documents; they are dropped and counted. Raises UserError (65) for more than
    `cap` bytes in all, or a damaged file.
    """
    read = dropped = 0
    with _sound(path), gzip.open(path) as rows, _Out(outs[0]) as first, _Out(outs[1]) as second:
        sides = (second, first) if swapped else (first, second)
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
            for out, cell in zip(sides, cells, strict=False):
                out.add(cell + b"\n")
    return SidesFacts(first.text, second.text, dropped)


class _Out:
    """A file that is written, counted and hashed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._hash = hashlib.sha256()
        self.lines = self.size = 0

    def add(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.lines += data.count(b"\n")
        self.size += len(data)

    @property
    def text(self) -> TextFacts:
        return TextFacts(self.lines, self.size, self._hash.hexdigest())

    def __enter__(self) -> "_Out":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _copy(stream: IO[bytes], out: Path, cap: int, path: Path, name: str) -> TextFacts:
    with _Out(out) as copy:
        block = stream.read(BLOCK).removeprefix(BOM)
        last = b"\n"
        while block:
            if copy.size + len(block) > cap:
                raise _too_much(path, name, cap)
            copy.add(block)
            last = block[-1:]
            block = stream.read(BLOCK)
        if last != b"\n":
            copy.add(b"\n")
    return copy.text


def _tar(
    path: Path, targets: Mapping[tuple[str, ...], Path], cap: int
) -> dict[tuple[str, ...], tuple[str, TextFacts]]:
    """One pass through a compressed tar archive, up to the last member that is asked for."""
    texts: dict[tuple[str, ...], tuple[str, TextFacts]] = {}
    members: list[str] = []
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            members.append(name)
            names = next((n for n in targets if name in n and n not in texts), None)
            if names is None:
                continue
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                raise _no_file(path, name)
            texts[names] = name, _copy(stream, targets[names], cap, path, name)
            if len(texts) == len(targets):
                return texts
    raise _missing(path, next(n for n in targets if n not in texts), members)


def _zip(
    path: Path, targets: Mapping[tuple[str, ...], Path], cap: int
) -> dict[tuple[str, ...], tuple[str, TextFacts]]:
    texts: dict[tuple[str, ...], tuple[str, TextFacts]] = {}
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        for names, out in targets.items():
            name = next((n for n in names if n in members), None)
            if name is None:
                raise _missing(path, names, members)
            info = archive.getinfo(name)
            if info.is_dir() or (info.external_attr >> 16) & 0o170000 == SYMLINK:
                raise _no_file(path, name)
            with archive.open(info) as stream:
                texts[names] = name, _copy(stream, out, cap, path, name)
    return texts


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turn what a damaged archive raises into a UserError (65)."""
    try:
        yield
    except (
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        tarfile.TarError,
        zipfile.BadZipFile,
        NotImplementedError,  # a compression or version that zipfile does not know
        RuntimeError,  # an encrypted member
    ) as error:
        if isinstance(error, RecursionError):
            raise
        raise UserError(f"{path}: damaged archive ({error}); fetch it again", Exit.DATA) from None


def _too_much(path: Path, name: str, cap: int) -> UserError:
    return UserError(
        f"{path}: {name}: more than the {cap} bytes that the lock file allows, or a row of more "
        f"than {LONGEST}; this is not the text that was asked for",
        Exit.DATA,
    )


def _no_file(path: Path, name: str) -> UserError:
    return UserError(f"{path}: {name}: a link, directory or device, no plain file", Exit.DATA)


def _missing(path: Path, names: Sequence[str], members: Sequence[str]) -> UserError:
    near = get_close_matches(names[0], members, NEAR, 0.3) or sorted(members)[:NEAR]
    hint = f"near are {', '.join(near)}" if near else "it is empty"
    return UserError(f"{path}: has no member {' or '.join(names)}; {hint}", Exit.DATA)
