"""A file that grows as NAME.part and appears as NAME when it is complete, whatever stops it.

NAME.part.json records what has been done: how many lines of which input, by which model and
settings, and the SHA-256 of what they became. The next identical command goes on from there.
"""

import errno
import fcntl
import hashlib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from os.path import samestat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt.cli.streams import OutputStream, plain_output
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.system import atomic, manifest
from nmt.system.outputs import check_writable, unwritable
from nmt.text.lines import file_of

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two records: each waits for the disk


class Hashed:
    """Lines, and the SHA-256 of their beginning at each multiple of a number of lines."""

    def __init__(self, lines: Iterable[str], every: int) -> None:
        self._lines, self._every = iter(lines), every
        self._hash = hashlib.sha256()
        self._count = 0
        self._marks: dict[int, bytes] = {0: self._hash.digest()}

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._hash.update(f"{line}\n".encode())
        self._count += 1
        if self._count % self._every == 0:
            self._marks[self._count] = self._hash.digest()
        return line

    def digest(self, count: int) -> bytes | None:
        """The hash of the first `count` lines, once; None if fewer have been read."""
        return self._marks.pop(count, None)


def digest(inputs: Mapping[str, Hashed], count: int) -> str:
    """The hash, in hexadecimal digits, of the first lines of all that was read."""
    parts = (name.encode() + (lines.digest(count) or b"") for name, lines in sorted(inputs.items()))
    return hashlib.sha256(b"".join(parts)).hexdigest()


class Progress(NamedTuple):
    """The state when the output was last in step with its input."""

    lines: int = 0  # of the input
    input: str = ""  # SHA-256 of these lines and of the columns parallel to them
    notes: Mapping[str, list[int]] = {}  # what was unusual about them
    bytes: int = 0  # of NAME.part
    output: str = ""  # SHA-256 of these bytes


class ResumableOutput(OutputStream):
    """NAME.part, open to be written, and the record of what has been done."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Find out what is done, cut off what was half written; raises what `open_output` does."""
        self.path, self.identity = path, dict(identity)
        self.part, self.record = partial_files(path)
        self.progress = Progress()  # as of the last full window
        self._hash = hashlib.sha256()
        super().__init__(self._locked())
        try:
            if self.part.stat().st_size:
                self.progress = self._resumed()
            self.lines = self.progress.lines  # done by earlier commands
            self.file.seek(self.progress.bytes)
            self.file.truncate()
            self._write_record()
        except BaseException:
            self.file.close()
            raise

    def write(self, record: str) -> None:
        """Write what belongs to one line of the input."""
        data = record.encode()
        self.file.write(data)
        self._hash.update(data)

    def advance(self, progress: Progress) -> None:
        """Note that all is written that belongs to these lines of the input."""
        self.progress = progress._replace(bytes=self.file.tell(), output=self._hash.hexdigest())
        if time.monotonic() - self._recorded >= EVERY:
            self._write_record()

    def _locked(self) -> BinaryIO:
        """Open NAME.part for this process alone."""
        file = os.fdopen(os.open(self.part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if samestat(self.part.stat(), os.fstat(file.fileno())):  # not renamed by its writer
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()
        raise UserError(
            f"{self.part}: in use by another process; wait, or give another -o",
            Exit.CANT_CREATE,
        )

    def _resumed(self) -> Progress:
        """The progress that NAME.part holds by its record."""
        if not self.record.exists():
            raise UserError(
                f"{self.part}: not left by this command, for {self.record.name} is missing; "
                "give another -o, or move it away",
                Exit.CANT_CREATE,
            )
        record = manifest.parse(self.record.read_bytes(), self.record)
        try:
            progress = Progress(**record["progress"])
            before = dict(record["identity"])
            assert isinstance(progress.lines, int) and isinstance(progress.bytes, int)
        except (TypeError, KeyError, ValueError, AssertionError):
            raise UserError(
                f"{self.record}: damaged; remove {self.part} to begin anew", Exit.DATA
            ) from None
        if not progress.lines:
            return Progress()
        if key := next((k for k in self.identity if before.get(k) != self.identity[k]), None):
            old, new = before.get(key), self.identity[key]
            difference = f"another {key}" if key.startswith("model") else f"{key}={old}, now {new}"
            raise UserError(
                f"{self.part}: its {progress.lines} lines were made with {difference}; "
                "give another -o, or remove it"
            )
        self._hash.update(self.file.read(progress.bytes))
        if self._hash.hexdigest() != progress.output:
            raise UserError(
                f"{self.part}: changed since it was left; remove it to begin anew", Exit.DATA
            )
        return progress

    def _write_record(self) -> None:
        """Record the progress; what it speaks of is on the disk before."""
        self.file.flush()
        os.fsync(self.file.fileno())
        record = {"identity": self.identity, "progress": self.progress._asdict()}
        atomic.replace(self.record, manifest.dump(record))
        self._kept = self.progress
        self._recorded = time.monotonic()

    def complete(self) -> None:
        """Give the file its name."""
        self.file.flush()
        atomic.move(self.part, self.path)
        self.record.unlink(missing_ok=True)
        self.file.close()

    def abandon(self) -> None:
        """Leave what the next command goes on from, or nothing where nothing was done."""
        with suppress(OSError):  # the disk may be full; the first error is the one to tell
            self._write_record()
        if self._kept.lines > self.lines:
            log.warning(
                "%s: keeps the %d lines done so far; the same command goes on from there",
                self.part,
                self._kept.lines,
            )
        elif not self._kept.lines:
            self.record.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)
        with suppress(OSError):
            self.file.close()


def partial_files(path: Path) -> tuple[Path, Path]:
    """Where a file grows, and where the record of it stands."""
    return path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")


def check_output(output: str | None, inputs: Iterable[str]) -> None:
    """Refuse an output that cannot be made, and an input that it would overwrite."""
    if output is None or not _is_file(output):
        return
    path = Path(output)
    if not path.parent.exists():  # a misspelling: no directory is made for lines that grow
        raise unwritable(path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    check_writable([path])
    check_writable(partial_files(path))  # a directory may have no name for them: /
    for name in inputs:
        try:
            read = os.fstat(sys.stdin.fileno()) if name == "-" else file_of(Path(name)).stat()
        except (OSError, ValueError, AttributeError):  # what cannot be opened is refused later
            continue
        for written in (path, *partial_files(path)):
            if written.exists() and samestat(read, written.stat()):
                what = "is an input" if written == path else f"would write {written.name}, an input"
                raise UserError(f"-o {output}: {what}; give another -o")


def _is_file(output: str) -> bool:
    """Whether an output is a file; a device or a pipe keeps nothing, and cannot be renamed over."""
    return output != "-" and (
        Path(output).is_dir() or Path(output).is_file() or not Path(output).exists()
    )


@contextmanager
def open_output(name: str | None, identity: Mapping[str, Any]) -> Iterator[OutputStream]:
    """The output that -o names; None: stdout. A file gets its name if it is left without an error.

    Refused lines are no error of the output. `identity`: the model, the settings, and all else but
    the input that decides on lines. Raises UserError: 2 if NAME.part was begun with another
    identity, 65 if it is damaged, 73 if it cannot be written, is being written by another process,
    or was left by something else.
    """
    refused: RefusedLinesError | None = None
    with _opened(name, identity) as output:
        try:
            yield output
        except RefusedLinesError as error:  # after the last line
            refused = error
    if refused is not None:
        raise refused


@contextmanager
def _opened(name: str | None, identity: Mapping[str, Any]) -> Iterator[OutputStream]:
    if name is None or not _is_file(name):
        with plain_output(name) as stream:
            yield stream
        return
    try:
        output = ResumableOutput(Path(name), identity)
    except OSError as error:
        raise unwritable(Path(name), error) from None
    try:
        yield output
        output.complete()
    except BaseException:
        output.abandon()
        raise


def skip_finished(
    output: OutputStream, inputs: Mapping[str, Hashed], what: str, source: str
) -> Mapping[str, list[int]]:
    """Read over the lines that are done, and return what was unusual about them.

    Raises UserError (2) if those lines of the output were made of others: `what`, of `source`.
    """
    if not isinstance(output, ResumableOutput) or not output.lines:
        return {}
    for stream in inputs.values():
        for _ in islice(stream, output.lines):
            pass
    if digest(inputs, output.lines) != output.progress.input:
        raise UserError(
            f"{output.part}: its {output.lines} lines are {what} of another text than "
            f"{source}, or a file read in step with it, now holds; give another -o, or remove it"
        )
    log.info("%s: goes on after %d lines", output.part, output.lines)
    return output.progress.notes
