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
MARKS = {  # those of UTF-32 first: they begin with those of UTF-16
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
HEAD = 4096  # bytes of a file that show its encoding
NULS = 0.1  # of the upper bytes: in UTF-16, spaces and line ends have one in any script


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


def other_encoding(head: bytes) -> str | None:
    """Return the encoding of a text that begins so, if it is UTF-16 or UTF-32.

    Without a byte order mark the NULs show it: they are in one half of the byte pairs alone, and
    what then decodes to line ends is bytes of line ends.
    """
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name
    quads = head[: len(head) // 4 * 4]
    for name, upper in (("UTF-32LE", (3, 2)), ("UTF-32BE", (0, 1))):
        planes = [quads[at::4] for at in upper]  # code points end at 0x10ffff
        if len(quads) >= 8 and not any(planes[0]) and max(planes[1]) <= 0x10 and any(quads):
            return name
    pairs = head[: len(head) // 2 * 2]
    for name, at in (("UTF-16LE", 1), ("UTF-16BE", 0)):
        nuls = pairs[at::2].count(0)
        if nuls < max(2, NULS * len(pairs) / 2) or pairs[1 - at :: 2].count(0):
            continue
        if b"\n" not in pairs or "\n" in pairs.decode(name, "replace"):
            return name
    return None


def refuse_other_encoding(head: bytes, where: str) -> None:
    """Raise UserError (65) for a text that begins as UTF-16 or UTF-32 does."""
    if encoding := other_encoding(head):
        raise UserError(
            f"{where}: is {encoding}, not UTF-8; convert it: iconv -f {encoding} -t UTF-8",
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
            refuse_other_encoding(stream.peek(HEAD)[:HEAD], str(path))
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
