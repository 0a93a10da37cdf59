"""Text files, line by line, as other tools count lines: a line ends at LF and nowhere else.

Python's text mode also ends lines at a lone CR, and `codecs` and `splitlines` at nine further
characters, which shifts one side of a parallel corpus against the other. So bytes are read here.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)

BOM = b"\xef\xbb\xbf"
MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # byte order marks of UTF-16 and UTF-32
HEAD = 4096  # bytes of a file that show its encoding
NULS = 0.05  # of these bytes: in UTF-16, spaces and line ends of any script have one


class RawLine(NamedTuple):
    """One line as it stood in its file."""

    raw: bytes  # without line end and byte order mark
    crlf: bool  # the line ended in CR LF
    bom: bool  # the file began with a byte order mark, and this is its first line


def raw_lines(stream: Iterable[bytes], first: bool = True) -> Iterator[RawLine]:
    """Yield lines; `first`: the stream is at the start of its file."""
    for number, raw in enumerate(stream):
        bom = first and number == 0 and raw.startswith(BOM)
        raw = raw[len(BOM) :] if bom else raw
        raw = raw.removesuffix(b"\n")
        crlf = raw.endswith(b"\r")
        yield RawLine(raw[:-1] if crlf else raw, crlf, bom)


def decoded(raw: bytes, where: str, hint: str = "mend the file") -> str:
    r"""Read strict UTF-8; UserError at `where` with the offset and the bytes as \xNN."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        bad = "".join(f"\\x{byte:02x}" for byte in raw[error.start : error.start + 4])
        raise UserError(
            f"{where}: byte {error.start} of the line begins no UTF-8 character: {bad}; {hint}",
            Exit.DATA,
        ) from None


def is_wide(head: bytes) -> bool:
    """Whether a text begins as UTF-16 or UTF-32 does: with their byte order mark, or many NULs."""
    return head.startswith(MARKS) or head.count(0) >= max(2, NULS * len(head))


def refuse_wide(head: bytes, where: str) -> None:
    """Raise UserError (65) for a text in UTF-16 or UTF-32."""
    if is_wide(head):
        raise UserError(
            f"{where}: is UTF-16 or UTF-32, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
            Exit.DATA,
        )


@contextmanager
def opened(path: Path, hint: str = "check the path") -> Iterator[BinaryIO]:
    """Open a text file (.gz is decompressed) for bytes.

    UserError if it cannot be opened (66), is UTF-16 or UTF-32 (65), or if the compressed stream
    is damaged (65), which may come as late as its last byte: use nothing of it before the stream
    has ended.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        stream = cast(BufferedReader, opener(path, "rb"))  # a GzipFile can peek as well
    except FileNotFoundError:
        raise _absent(path, hint) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {hint}", Exit.NO_INPUT) from None
    with stream:
        try:
            refuse_wide(stream.peek(HEAD)[:HEAD], str(path))
            yield stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{path}: damaged gzip file ({error}); fetch or compress it again", Exit.DATA
            ) from None


def side_file(named: str, hint: str) -> Path:
    """Return the file that contains one side of a corpus: this one, or the same compressed (.gz).

    Raises UserError: 66 if there is neither, with what exists instead; 65 for a table.
    """
    path = Path(named)
    if path.name.removesuffix(".gz").endswith(".tsv"):
        raise UserError(f"{path}: a table, and no side of a corpus; {_cut(path)}", Exit.DATA)
    packed = path.with_name(f"{path.name}.gz")
    if path.exists() or not packed.exists():
        with opened(path, hint):
            return path
    log.info("%s: not there; reading %s", path, packed.name)
    return packed


def _absent(path: Path, hint: str) -> UserError:
    """Return the error for a file that does not exist; it names a file of a similar name."""
    packed, table = path.with_name(f"{path.name}.gz"), path.with_suffix(".tsv")
    if packed.exists():
        hint = f"there is {packed}: give that"
    elif table.exists():
        hint = f"there is {table}: {_cut(table)}"
    return UserError(f"{path}: no such file; {hint}", Exit.NO_INPUT)


def _cut(table: Path) -> str:
    """Return the command that makes the sides of a corpus from a table."""
    stem = table.name.removesuffix(".gz").removesuffix(".tsv")
    read = f"gzip -dc {table} | cut -f1" if table.suffix == ".gz" else f"cut -f1 {table}"
    return f"make a file of each column: {read} > {table.with_name(stem)}.SOURCE"


def read_text(path: Path, hint: str = "check the path") -> list[str]:
    """Read all lines of a file as text; UserError if it is missing, damaged or not UTF-8."""
    with opened(path, hint) as stream:
        return [
            decoded(line.raw, f"{path}:{number}")
            for number, line in enumerate(raw_lines(stream), start=1)
        ]
