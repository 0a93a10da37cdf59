"""Text files, line by line, as other tools count lines: a line ends at LF and nowhere else.

Python's text mode also ends lines at a lone CR, and `codecs` and `splitlines` at nine further
characters, which shifts one side of a parallel corpus against the other. So bytes are read here.
"""

import gzip
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)

BOM = b"\xef\xbb\xbf"
MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # byte order marks of UTF-16 and UTF-32
HEAD = 4096  # bytes, and the rest of their last line, that show what a file is
COMPRESSED = re.compile(  # how compressed files begin; no text in UTF-8 does
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd)|(?P<bzip2>BZh[1-9][1\x17][Ar])"
    rb"|(?P<xz>\xfd7zXZ\0)|(?P<zip>PK\x03\x04)"
)
MARKUP = re.compile(  # how files of WMT and translation memories begin; of XML, a whole line
    rb"\s*<((!doctype )?(tmx|mteval|(src|ref|tst|data)set)\b|\?xml\s[^>]*\?>\s*($|\n))",
    re.IGNORECASE,
)
NULS = 0.01  # share of these bytes: in UTF-16, spaces and line ends of any script have a NUL
PACKED = (".gz", ".zst")  # the endings of compressed files
TABLE = r".*\.tsv(\.gz|\.zst)?"  # the name of a table


def raw_lines(stream: Iterable[bytes], first: bool = True) -> Iterator[bytes]:
    """Yield lines without their ends, LF or CR LF, and without the byte order mark of a file.

    `first`: the stream is at the start of its file.
    """
    for number, line in enumerate(stream):
        if first and number == 0:
            line = line.removeprefix(BOM)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def decode_utf8(raw: bytes, where: str, hint: str = "mend the file") -> str:
    r"""Read strict UTF-8; UserError at `where` with the offset and the bytes as \xNN."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        bad = "".join(f"\\x{byte:02x}" for byte in raw[error.start : error.start + 4])
        raise UserError(
            f"{where}: byte {error.start} of the line begins no UTF-8 character: {bad}; {hint}",
            Exit.DATA,
        ) from None


def refuse_other_than_lines(head: bytes, where: str) -> None:
    """Raise UserError (65), by its first bytes, for what is no text of a sentence a line in UTF-8.

    That is markup (the SGML and XML of WMT, and TMX), compressed text, and other encodings.
    """
    decoded = head.decode(errors="replace")
    invalid = decoded.count("\ufffd") - head.count("\ufffd".encode())
    beyond_ascii = len(decoded) - len(decoded.encode("ascii", "ignore"))
    if MARKUP.match(head.removeprefix(BOM)):
        what = "is SGML, XML or TMX; extract the text of its segments, one a line"
    elif match := COMPRESSED.match(head):
        what = f"is compressed by {match.lastgroup}; decompress it first"
    elif head.startswith(MARKS) or head.count(0) >= max(2, NULS * len(head)):
        what = "is UTF-16 or UTF-32, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8"
    elif invalid >= max(20, len(head) / 100) and invalid > beyond_ascii / 2:  # fewer are damage
        what = (
            "is not UTF-8 but, as it seems, Latin-1 or the like; convert it: iconv -t UTF-8 -f ..."
        )
    else:
        return
    raise UserError(f"{where}: {what}", Exit.DATA)


def check_stream(stream: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Yield each line as it comes; UserError as soon as what has come shows no text of lines."""
    head = b""
    for line in stream:
        if len(head) < HEAD:
            head += line
            refuse_other_than_lines(head, where)
        yield line


def unpacked_name(path: Path) -> Path:
    """The path without the ending of a compressed file."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".zst"))


@contextmanager
def open_lines(path: Path, hint: str = "check the path") -> Iterator[Iterable[bytes]]:
    """Open a text file for lines; gzip and zstd are decompressed.

    Its first bytes, not its name, say whether a file is compressed. UserError if it cannot be
    opened (66), is no text of lines (65), or if the compressed stream is damaged (65), which may
    come as late as its last byte: use nothing of it before the stream has ended.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {hint}", Exit.NO_INPUT) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {hint}", Exit.NO_INPUT) from None
    with file:
        kind = match.lastgroup if (match := COMPRESSED.match(file.peek(HEAD))) else None
        damage: tuple[type[Exception], ...] = EOFError, zlib.error, gzip.BadGzipFile
        stream: Any = gzip.GzipFile(fileobj=file) if kind == "gzip" else file
        if kind == "zstd":
            zstd = _import_zstd(path)
            stream, damage = zstd.open(file), (EOFError, zstd.ZstdError)
        try:
            if path.is_file():
                head = stream.readlines(HEAD)
                refuse_other_than_lines(b"".join(head), str(path))
                yield chain(head, stream)
            else:  # of a pipe, a further line may follow on the answer to the first
                yield check_stream(stream, str(path))
        except damage as error:
            raise UserError(
                f"{path}: damaged {kind} file ({error}); fetch or compress it again", Exit.DATA
            ) from None


def _import_zstd(path: Path) -> Any:
    """The module for zstd in Python 3.14 and later, or the package that stands in for it."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    what = "to read zstd, this Python needs a package: pip install backports.zstd"
    raise UserError(f"{path}: {what}", Exit.NO_INPUT)


def side_file(named: str, hint: str) -> Path:
    """Return the file that contains one side of a corpus: this one, or the same compressed.

    Raises UserError: 66 if there is neither, with what exists instead; 65 for a table.
    """
    path = Path(named)
    if not path.name:
        raise UserError(f"{named!r}: no file; {hint}", Exit.NO_INPUT)
    if re.fullmatch(TABLE, path.name):
        raise UserError(f"{path}: a table; write its columns to files: cut -f1", Exit.DATA)
    if (packed := find_packed(path)) != path:
        log.info("%s: not there; reading %s", path, packed.name)
        return packed
    with open_lines(path, hint):
        return path


def find_packed(path: Path) -> Path:
    """The path itself, or that of the compressed file if only that exists."""
    packed = () if path.exists() else (path.with_name(path.name + ending) for ending in PACKED)
    return next((file for file in packed if file.exists()), path)


def read_text(path: Path, hint: str = "check the path") -> list[str]:
    """Read all lines of a file as text; UserError if it is missing, damaged or not UTF-8."""
    with open_lines(path, hint) as stream:
        lines = enumerate(raw_lines(stream), start=1)
        return [decode_utf8(line, f"{path}:{number}") for number, line in lines]


def read_parallel(path: Path, lines: Sequence[str], of: object) -> list[str]:
    """All lines of a file; UserError (65) unless it has as many as `lines` of the file `of`."""
    parallel = read_text(path)
    if len(parallel) != len(lines):
        raise UserError(
            f"{path}: has {len(parallel)} lines, but {of} has {len(lines)}; line N of both must "
            "belong together",
            Exit.DATA,
        )
    return parallel
