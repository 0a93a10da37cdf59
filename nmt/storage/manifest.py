"""Directories whose manifest vouches for every byte.

Neither safetensors nor JSON notices a flipped bit or a hole of zeros: such weights load and are
wrong. So the sizes and SHA-256 sums of all files stand in manifest.json, written last, and no
byte is parsed before it is compared with them.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import nmt
from nmt.errors import Exit, UserError, visible
from nmt.storage import atomic

NAME = "manifest.json"
FORMAT = 1  # rises when older versions of nmt can no longer read what this one writes
_NAME = re.compile(r"[\w-][\w.-]*", re.A)
JSON_LIMIT = 1 << 20  # bytes; a larger config is no config


def write(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Make a directory of files and their manifest, atomically; the path must not exist.

    Files may come from a generator: one at a time is held in memory.
    """
    atomic.directory(path, _with_manifest(files))


def _with_manifest(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    entries = {}
    for name, data in files:
        entries[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        yield name, data
    yield NAME, dump({"format_version": FORMAT, "nmt": nmt.__version__, "files": entries})


class OtherFormatError(UserError):
    """A directory that is sound, but written in a format this version does not read."""


class Sealed:
    """Reads files of a directory only as its manifest describes them.

    Raises UserError (exit 65) for anything that is not exactly as it was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        where = path / NAME
        if not where.is_file():
            raise UserError(f"{path}: not a model directory (it has no {NAME})", Exit.DATA)
        data = _read(where, JSON_LIMIT)
        self.digest = hashlib.sha256(
            data
        ).hexdigest()  # vouches for all files, as the manifest does
        record = parse(data, where)
        version = record.get("format_version") if isinstance(record, dict) else None
        if version != FORMAT:
            writer = record.get("nmt", "an unknown version") if isinstance(record, dict) else "?"
            raise OtherFormatError(
                f"{where}: format {visible(version, 20)}, written by nmt {visible(writer, 20)}; "
                f"this is nmt {nmt.__version__}, which reads format {FORMAT}",
                Exit.DATA,
            )
        self.files = record.get("files")
        if not isinstance(self.files, dict):
            raise UserError(f"{where}: lists no files; the file is damaged", Exit.DATA)
        for name in self.files:
            if not _NAME.fullmatch(name):  # so that nothing outside is ever read
                raise UserError(f"{where}: {visible(name, 80)!r}: no name of a file", Exit.DATA)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return a file's bytes after comparing size and hash; at most `limit` bytes."""
        where = self.path / name
        entry = self.files.get(name)
        if not isinstance(entry, dict):
            raise UserError(f"{where}: not listed in {NAME}", Exit.DATA)
        data = _read(where, limit, entry.get("bytes"))
        actual = hashlib.sha256(data).hexdigest()
        if actual != (expected := entry.get("sha256")):
            raise UserError(
                f"{where}: damaged; SHA-256 is {actual}, {NAME} says {visible(expected, 64)}",
                Exit.DATA,
            )
        return data

    def json(self, name: str, limit: int = JSON_LIMIT) -> dict[str, Any]:
        """Return the object that a JSON file of at most `limit` bytes holds."""
        values = parse(self.read(name, limit), self.path / name)
        if not isinstance(values, dict):
            raise UserError(f"{self.path / name}: expected a JSON object", Exit.DATA)
        return values


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def dump(value: Any) -> bytes:
    """Write JSON that keeps the order of keys, and refuses what is no JSON (NaN)."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parse(data: bytes, where: Path) -> Any:
    """Read JSON; raises UserError (exit 65) that names the file."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise UserError(f"{where}: no valid JSON ({error})", Exit.DATA) from None


def read(where: Path) -> dict[str, Any]:
    """Read the object of a JSON file; raises UserError (exit 65) where there is none."""
    values = parse(_read(where, JSON_LIMIT), where)
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected a JSON object", Exit.DATA)
    return values


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _read(where: Path, limit: int | None, expected: Any = None) -> bytes:
    try:
        if not where.is_file():
            raise UserError(f"{where}: the file is missing", Exit.DATA)
        size = where.stat().st_size
        if expected is not None and size != expected:
            raise UserError(
                f"{where}: damaged; it has {size} bytes, {NAME} says {visible(expected, 20)}",
                Exit.DATA,
            )
        if limit is not None and size > limit:
            raise UserError(f"{where}: {size} bytes; at most {limit} are accepted", Exit.DATA)
        return where.read_bytes()
    except OSError as error:
        raise UserError(f"{where}: {error.strerror}", Exit.DATA) from None
