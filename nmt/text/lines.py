"""Text files, line by line, as other tools count lines: a line ends at LF and nowhere else.

Python's text mode also ends lines at a lone CR, and `codecs` and `splitlines` at nine further
characters, which shifts one side of a parallel corpus against the other. So bytes are read here.
"""

import gzip
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)

BOM = b"\xef\xbb\xbf"
MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # byte order marks of UTF-16 and UTF-32
HEAD = 4096  # bytes of a file that show its encoding
MARKUP = re.compile(  # how files of WMT and translation memories begin; of XML, a line of its own
    rb"\s*<((!doctype )?(tmx|mteval|(src|ref|tst|data)set)\b|\?xml\s[^>]*\?>\s*($|\n))",
    re.IGNORECASE,
)
NULS = 0.05  # of these bytes: in UTF-16, spaces and line ends of any script have one
PACKED = (".gz", ".zst")  # the endings of compressed files
TABLE = r".*\.tsv(\.gz|\.zst)?"  # the name of a table
COLUMN = re.compile(rf"({TABLE}):([1-9]\d*)", re.DOTALL)


def raw_lines(stream: Iterable[bytes], first: bool = True) -> Iterator[bytes]:
    """Yield lines without their ends, LF or CR LF, and without the byte order mark of a file.

    `first`: the stream is at the start of its file.
    """
    for number, line in enumerate(stream):
        if first and number == 0:
            line = line.removeprefix(BOM)
        yield line.removesuffix(b"\n").removesuffix(b"\r")


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


def refuse_other_than_lines(head: bytes, where: str) -> None:
    """Raise UserError (65), by its first bytes, for what is no text of a sentence a line.

    That is a text in UTF-16 or UTF-32, by its byte order mark or many NULs, and markup: the SGML
    and XML of WMT, and TMX.
    """
    if MARKUP.match(head.removeprefix(BOM)):
        raise UserError(
            f"{where}: is SGML, XML or TMX; extract the text of its segments, one a line",
            Exit.DATA,
        )
    if head.startswith(MARKS) or head.count(0) >= max(2, NULS * len(head)):
        raise UserError(
            f"{where}: is UTF-16 or UTF-32, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8",
            Exit.DATA,
        )


def table_column(table: Iterable[bytes], column: int, where: str) -> Iterator[bytes]:
    """Yield one column of a table as lines; UserError (65) at a line that has too few columns."""
    for number, line in enumerate(table, start=1):
        fields = line.removesuffix(b"\n").split(b"\t")
        if len(fields) < column and line.strip():  # an empty line is one in each column
            raise UserError(
                f"{where}:{number}: has no column {column}, only {len(fields)}; columns are "
                "separated by tabs",
                Exit.DATA,
            )
        yield (fields[column - 1] if len(fields) >= column else b"") + b"\n"


def uncompressed(path: Path) -> Path:
    """The same without the ending of a compressed file."""
    return path.with_name(path.name.removesuffix(".gz").removesuffix(".zst"))


def file_of(path: Path) -> Path:
    """The file that a text is read from: of T.tsv:2, a column, the table."""
    column = COLUMN.fullmatch(str(path))
    return Path(column[1]) if column and not path.exists() else path


@contextmanager
def opened(path: Path, hint: str = "check the path") -> Iterator[Iterable[bytes]]:
    """Open a text file for lines: .gz and .zst are decompressed, T.tsv:2 is a column of T.tsv.

    UserError if it cannot be opened (66), is UTF-16, UTF-32 or markup (65), or if the compressed
    stream is damaged (65), which may come as late as its last byte: use nothing of it before the
    stream has ended.
    """
    if (table_file := file_of(path)) != path:
        with opened(table_file, hint) as table:
            yield table_column(table, int(path.name.rpartition(":")[2]), str(table_file))
        return
    damage: tuple[type[Exception], ...] = EOFError, zlib.error, gzip.BadGzipFile
    try:
        if path.suffix == ".zst":
            zstd = _zstd(path)
            opener, damage = zstd.open, (EOFError, zstd.ZstdError)
        else:
            opener = gzip.open if path.suffix == ".gz" else open
        stream = cast(BufferedReader, opener(path, "rb"))  # those of a compressed file peek as well
    except FileNotFoundError:
        raise _absent(path, hint) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {hint}", Exit.NO_INPUT) from None
    with stream:
        try:
            refuse_other_than_lines(stream.peek(HEAD)[:HEAD], str(path))
            yield stream
        except damage as error:
            kind = "zstd" if path.suffix == ".zst" else "gzip"
            raise UserError(
                f"{path}: damaged {kind} file ({error}); fetch or compress it again", Exit.DATA
            ) from None


def _zstd(path: Path) -> Any:
    """Python's module for zstd, from 3.14 on, or the same for older ones."""
    try:
        from compression import zstd  # type: ignore[import-not-found]
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise UserError(
                f"{path}: to read zstd, this Python needs a package: pip install backports.zstd",
                Exit.NO_INPUT,
            ) from None
    return zstd


def side_file(named: str, hint: str) -> Path:
    """Return the file that contains one side of a corpus: this one, or the same compressed.

    Raises UserError: 66 if there is neither, with what exists instead; 65 for a table.
    """
    path = Path(named)
    if not path.name:
        raise UserError(f"{named!r}: no file; {hint}", Exit.NO_INPUT)
    if re.fullmatch(TABLE, path.name):
        raise UserError(f"{path}: a table; name a column of it, such as {path}:1", Exit.DATA)
    if (there := packed(path)) != path:
        log.info("%s: not there; reading %s", path, there.name)
        return there
    with opened(path, hint):
        return path


def packed(path: Path) -> Path:
    """The same file compressed, where only that exists."""
    others = () if path.exists() else (path.with_name(path.name + ending) for ending in PACKED)
    return next((other for other in others if other.exists()), path)


def _absent(path: Path, hint: str) -> UserError:
    """Return the error for a file that does not exist; it names a file of a similar name."""
    table = path.with_suffix(".tsv")
    others = [other.with_name(other.name + end) for other in (path, table) for end in ("", *PACKED)]
    if other := next((other for other in others if other.exists()), None):
        is_table = re.fullmatch(TABLE, other.name) and not path.name.endswith(".tsv")
        wanted = f"name a column of it, such as {other}:1" if is_table else "give that"
        hint = f"there is {other}: {wanted}"
    return UserError(f"{path}: no such file; {hint}", Exit.NO_INPUT)


def read_text(path: Path, hint: str = "check the path") -> list[str]:
    """Read all lines of a file as text; UserError if it is missing, damaged or not UTF-8."""
    with opened(path, hint) as stream:
        return [
            decoded(line, f"{path}:{number}")
            for number, line in enumerate(raw_lines(stream), start=1)
        ]


def read_parallel(path: Path, lines: Sequence[str], of: object) -> list[str]:
    """All lines of a file; UserError (65) unless there are as many as `lines`, those of `of`."""
    parallel = read_text(path)
    if len(parallel) != len(lines):
        raise UserError(
            f"{path}: has {len(parallel)} lines, but {of} has {len(lines)}; line N of both must "
            "belong together",
            Exit.DATA,
        )
    return parallel
