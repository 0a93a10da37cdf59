"""Directories that are complete, and whose manifest vouches for every byte.

Models and prepared corpora. Neither safetensors nor JSON notices a flipped bit or a hole of zeros:
such weights load and are wrong, and so do ids of text. So the sizes and SHA-256 sums of all files
are in manifest.json, written last, and no byte is parsed before it is compared with them.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nmt
from nmt.errors import Exit, UserError, visible
from nmt.system import atomic

if TYPE_CHECKING:  # its import takes two seconds
    from torch import Tensor

log = logging.getLogger(__name__)

NAME = "manifest.json"
README = "README.md"  # for people, who may edit it: not listed
FORMAT = 1  # rises when other versions of nmt can no longer read what this one writes
_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.A)
ENTRY = {"sha256", "bytes"}  # keys of each file in the manifest
JSON_LIMIT = 1 << 20  # bytes; a larger config is no config
Stamp = tuple[tuple[str, int, int, int, int], ...]  # of a directory, file by file
_verified: dict[Path, Stamp] = {}  # directories that this process has verified, as they were then


def write(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Make a new directory of files, of which one at a time is held in memory, with a manifest."""
    with directory(path) as folder:
        for name, data in files:
            (folder / name).write_bytes(data)


@contextmanager
def directory(path: Path) -> Iterator[Path]:
    """Yield a directory to fill; it appears at `path`, with its manifest, or not at all.

    The manifest lists all files but README.md. Raises OSError with the path.
    """
    with atomic.temporary_directory(path) as folder:
        yield folder
        entries = {
            file.relative_to(folder).as_posix(): {
                "sha256": sha256_of(file),
                "bytes": file.stat().st_size,
            }
            for file in sorted(folder.rglob("*"))
            if file.is_file() and file != folder / README
        }
        record = {"format_version": FORMAT, "nmt": nmt.__version__, "files": entries}
        (folder / NAME).write_bytes(dump(record))
        for inner, _, names in os.walk(folder):
            for name in (*names, "."):
                atomic.sync(Path(inner) / name)
        os.rename(folder, path)  # noqa: PTH104
    atomic.sync(path.parent)
    _verified[path.resolve()] = _stamp(path)


class OtherFormatError(UserError):
    """A directory that is sound, but written in a format this version does not read."""


class VerifiedDirectory:
    """Reads files of a directory; UserError (65) for one that differs from the manifest."""

    def __init__(self, path: Path, kind: str = "a model directory") -> None:
        """`kind`: what the directory should be, for the message where it has no manifest."""
        self.path = path
        where = path / NAME
        if not where.is_file():
            raise UserError(f"{path}: not {kind} (it has no {NAME})", Exit.DATA)
        data = read_bytes(where, JSON_LIMIT)
        self.digest = hashlib.sha256(data).hexdigest()  # vouches for all files, as the manifest
        record = _object(data, where)
        if record.get("format_version", FORMAT) != FORMAT:
            version, writer = (visible(record.get(key), 20) for key in ("format_version", "nmt"))
            raise OtherFormatError(
                f"{where}: format {version}, written by nmt {writer}; this is nmt "
                f"{nmt.__version__}, which reads format {FORMAT}",
                Exit.DATA,
            )
        self.files: dict[str, dict[str, Any]] = record.get("files", {})
        if not ("format_version" in record and isinstance(self.files, dict) and self.files):
            raise UserError(f"{where}: has no format or lists no files; it is damaged", Exit.DATA)
        for name, entry in self.files.items():
            # so that nothing outside is ever read
            if not (_NAME.fullmatch(name) and isinstance(entry, dict) and entry.keys() == ENTRY):
                raise UserError(f"{where}: {visible(name, 80)!r}: no entry of a file", Exit.DATA)

    def verify(self) -> None:
        """Compare all listed files with the manifest, once in a process while none changes."""
        try:
            stamp = _stamp(self.path)
            if _verified.get(self.path.resolve()) == stamp:
                return
            for name in self.files:
                self.verify_file(name)
        except OSError as error:
            raise UserError(f"{error.filename or self.path}: {error.strerror}", Exit.DATA) from None
        _verified[self.path.resolve()] = stamp

    def verify_file(self, name: str) -> Path:
        """Return the path of a file after comparing size and hash, without holding it in memory."""
        path = self.path / name
        _check_size(path, None, self._entry(name)["bytes"])
        self._compare(name, sha256_of(path))
        return path

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return a file's bytes after comparing size and hash; at most `limit` bytes."""
        data = read_bytes(self.path / name, limit, self._entry(name)["bytes"])
        self._compare(name, hashlib.sha256(data).hexdigest())
        return data

    def json(self, name: str, limit: int | None = JSON_LIMIT) -> dict[str, Any]:
        """Return the object that a JSON file of at most `limit` bytes holds."""
        return _object(self.read(name, limit), self.path / name)

    def sha256(self, name: str) -> str:
        """Return the hash of a file that the manifest has; the file is not read."""
        return str(self._entry(name)["sha256"])

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self.files:
            raise UserError(f"{self.path / name}: not listed in {NAME}", Exit.DATA)
        return self.files[name]

    def _compare(self, name: str, actual: str) -> None:
        if actual != (expected := self.sha256(name)):
            reason = f"damaged; SHA-256 is {actual}, {NAME} says {visible(expected, 64)}"
            raise UserError(f"{self.path / name}: {reason}", Exit.DATA)


def find_damage(final: Path) -> str | None:
    """Say in one line what is wrong with a directory; None if it is undamaged."""
    try:
        if not final.is_dir():
            return f"{final}: is not there"
        VerifiedDirectory(final, "a prepared corpus").verify()
    except UserError as error:
        return str(error)
    except PermissionError as error:  # as for writing, of which `ensure` says more
        return f"{final}: {error.strerror}"
    return None


def ensure(final: Path, make: Callable[[Path], None], setting: str) -> bool:
    """Make a directory unless it exists undamaged; return whether this call made it.

    One process makes it, others wait. `make` fills a directory, which becomes `final`; a damaged
    one is renamed `corrupt.NAME`. `setting`: the override that chose the path, for errors. Raises
    UserError: 73 if nothing can be written there; 74 if the disk is full or fails.
    """
    if (problem := find_damage(final)) is None:
        return False
    waiting = f"{final}: another run is preparing it; waiting"
    try:
        with atomic.hold_lock(_lock_of(final), waiting):
            if (problem := find_damage(final)) is not None:  # else another process has made it
                _make_anew(final, problem, make)
    except OSError as error:
        raise UserError(
            f"{setting}: cannot be written ({error.strerror}), but {problem}; choose another",
            Exit.CANT_CREATE,
        ) from None
    return problem is not None


def _make_anew(final: Path, problem: str, make: Callable[[Path], None]) -> None:
    """Make a directory whose lock is held, and set a damaged one aside, if there is one."""
    from filelock import FileLock  # here, since few need it

    try:
        for leftover in sorted(final.parent.iterdir()):
            if path := atomic.owner_of(leftover):
                lock = nullcontext() if path == final else FileLock(_lock_of(path), timeout=0)
                with suppress(OSError), lock:  # Timeout: the process that makes it is alive
                    shutil.rmtree(leftover)
        if any(final.glob("*")):
            aside = final.with_name(f"corrupt.{final.name}")
            log.warning("%s; kept as %s; the corpus is prepared anew", problem, aside.name)
            if aside.exists():  # damaged again
                atomic.discard(aside)
            final.rename(aside)
        with directory(final) as folder:
            make(folder)
    except OSError as error:
        raise UserError(
            f"{error.filename or final}: {error.strerror or error}; make room or mend the "
            "disk, then start again",
            Exit.IO,
        ) from None


def _lock_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_text(value: Any) -> str:
    """Write JSON that keeps the order of keys; raises ValueError for what is no JSON (NaN)."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def dump(value: Any) -> bytes:
    """Write JSON as `json_text` does, in UTF-8."""
    return json_text(value).encode()


def dump_tensors(tensors: "dict[str, Tensor]") -> bytes:
    """The bytes of a file of safetensors; raises MemoryError where memory is short."""
    import safetensors.torch

    # as much as the file and its copy take: safetensors would panic instead of raising MemoryError
    bytes(2 * sum(t.nbytes for t in tensors.values()))
    return safetensors.torch.save(tensors)


def parse(data: bytes, path: Path) -> Any:
    """Read JSON; raises UserError (exit 65) that names the file."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise UserError(f"{path}: no valid JSON ({error})", Exit.DATA) from None


def read(path: Path, limit: int | None = JSON_LIMIT) -> dict[str, Any]:
    """Read the object of a JSON file; raises UserError (exit 65) where there is none."""
    return _object(read_bytes(path, limit), path)


def _object(data: bytes, path: Path) -> dict[str, Any]:
    values = parse(data, path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object", Exit.DATA)
    return values


def read_bytes(path: Path, limit: int | None = None, expected: Any = None) -> bytes:
    """Read a file of at most `limit` bytes; UserError (65) unless it is there and of that size."""
    try:
        _check_size(path, limit, expected)
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", Exit.DATA) from None


def _check_size(path: Path, limit: int | None, expected: Any) -> None:
    if not path.is_file():
        raise UserError(f"{path}: the file is missing", Exit.DATA)
    size, says = path.stat().st_size, f"{NAME} says {visible(expected, 20)}"
    if expected is not None and size != expected:
        raise UserError(f"{path}: damaged; it has {size} bytes, {says}", Exit.DATA)
    if limit is not None and size > limit:
        raise UserError(f"{path}: {size} bytes; at most {limit} are accepted", Exit.DATA)


def _stamp(directory: Path) -> Stamp:
    """Return what changes when a file is written, moved or exchanged."""
    stats = [(path, path.stat()) for path in sorted(directory.rglob("*")) if path.is_file()]
    return tuple((str(p), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in stats)
