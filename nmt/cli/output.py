"""The output of a command: stdout, or a file that is NAME.part until it is complete.

NAME.part.json records everything that determines the lines of NAME.part (model, settings, the hash
of the input) and how many are done. The next identical command truncates NAME.part to these lines
and continues. If the input is no file, it begins again.
"""

import errno
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from os.path import samestat
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt.cli.streams import is_complete
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.system import atomic, manifest, outputs

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two records: each waits for the disk


class Progress(NamedTuple):
    """The state after the last complete window of lines."""

    lines: int = 0  # of the input
    bytes: int = 0  # of NAME.part
    notes: Mapping[str, list[int]] = {}  # what was unusual about these lines


class OutputStream:
    """What a command writes; this one goes to stdout, a device or a pipe, and cannot be resumed."""

    progress = Progress()  # of an earlier command

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, record: str) -> None:
        """Write the output of one line of the input."""
        self.file.write(record.encode())

    def advance(self, lines: int, notes: Mapping[str, list[int]]) -> None:
        """Note that the output of the first `lines` lines is written."""
        self.file.flush()

    def skip_finished(self, inputs: Iterable[Iterator[str]]) -> None:
        """Skip the lines that an earlier command has done."""

    def complete(self) -> None:
        """Close the file after the last line."""
        self.file.close()

    def abandon(self) -> None:
        """Close the file after an error, which is the one to report."""
        with suppress(OSError):
            self.file.close()


class ResumableOutput(OutputStream):
    """NAME.part, open to be written, and the record of what has been done."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """Read the progress, and cut off what was half written; raises as `open_output` does."""
        self.path, self.identity = path, dict(identity)
        self._from_pipe = None in self.identity["text"].values()
        self.part, self.record = partial_files(path)
        super().__init__(self._lock())
        try:
            if self.part.stat().st_size:
                self.progress = self._read_progress()
            self.resumed = self.progress.lines
            self.file.seek(self.progress.bytes)
            self.file.truncate()
            self._write_record()
        except BaseException:
            self.file.close()
            raise

    def advance(self, lines: int, notes: Mapping[str, list[int]]) -> None:
        """Note that the output of the first `lines` lines is written."""
        self.progress = Progress(lines, self.file.tell(), dict(notes))
        if time.monotonic() - self._recorded >= EVERY:
            self._write_record()

    def skip_finished(self, inputs: Iterable[Iterator[str]]) -> None:
        """Skip the lines that an earlier command has done."""
        if self.resumed:
            for lines in inputs:
                next(islice(lines, self.resumed - 1, None))
            log.info("%s: goes on after %d lines", self.part, self.resumed)

    def _lock(self) -> BinaryIO:
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
            f"{self.part}: in use by another process; wait, or give another -o", Exit.CANT_CREATE
        )

    def _read_progress(self) -> Progress:
        """The recorded progress of NAME.part; UserError if the two do not belong together."""
        if not self.record.exists():
            raise UserError(
                f"{self.part}: not left by this command, for {self.record.name} is missing; "
                "give another -o, or move it away",
                Exit.CANT_CREATE,
            )
        record = manifest.read(self.record)
        try:
            recorded, progress = dict(record["identity"]), Progress(**record["progress"])
            whole = progress.lines >= 0 and progress.bytes <= self.part.stat().st_size
        except (TypeError, KeyError, ValueError):
            whole = False
        if not whole:
            raise UserError(f"{self.record}: damaged; remove {self.part} to begin anew", Exit.DATA)
        if not progress.lines:
            return Progress()
        if key := next((k for k in self.identity if recorded.get(k) != self.identity[k]), None):
            old, new = recorded.get(key), self.identity[key]
            is_hash = key.startswith(("model", "text"))
            difference = f"another {key}" if is_hash else f"{key}={old}, now {new}"
            raise UserError(
                f"{self.part}: its {progress.lines} lines were made with {difference}; "
                "give another -o, or remove it"
            )
        return Progress() if self._from_pipe else progress

    def _write_record(self) -> None:
        """Record the progress; what it speaks of is on the disk before."""
        self.file.flush()
        os.fsync(self.file.fileno())
        record = {"identity": self.identity, "progress": self.progress._asdict()}
        atomic.replace(self.record, manifest.dump(record))
        self._kept = self.progress.lines
        self._recorded = time.monotonic()

    def complete(self) -> None:
        """Give the file its name."""
        self.file.flush()
        atomic.move(self.part, self.path)
        self.record.unlink(missing_ok=True)
        self.file.close()

    def abandon(self) -> None:
        """Keep what the next command continues from, or nothing if nothing was done."""
        with suppress(OSError):  # the disk may be full
            self._write_record()
        if self._kept > self.resumed:
            log.warning(
                "%s: keeps the %d lines done so far%s",
                self.part,
                self._kept,
                "" if self._from_pipe else "; the same command goes on from there",
            )
        elif not self._kept:
            self.record.unlink(missing_ok=True)
            self.part.unlink(missing_ok=True)
        super().abandon()


def partial_files(path: Path) -> tuple[Path, Path]:
    """The paths of an unfinished file and of its record."""
    return path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")


def check_files(output: str | None, inputs: Sequence[str]) -> None:
    """Refuse stdin as two inputs, an output that cannot be made, and one that is an input."""
    if inputs.count("-") > 1:
        raise UserError("-: stdin can be one of the texts only; give files for the rest")
    if output is None or not _is_file(output):
        return
    path = Path(output)
    if not path.parent.exists():  # probably misspelled: no directory is created for it
        raise outputs.unwritable(path, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
    outputs.check_writable([path])
    outputs.check_writable(partial_files(path))  # a directory may have no name for them: /
    for name in inputs:
        try:
            read = os.fstat(sys.stdin.fileno()) if name == "-" else Path(name).stat()
        except (OSError, ValueError, AttributeError):  # what cannot be opened is refused later
            continue
        for written in (path, *partial_files(path)):
            if written.exists() and samestat(read, written.stat()):
                raise UserError(f"-o {output}: {written.name} is an input; give another -o")


def _is_file(output: str) -> bool:
    """Whether an output is a file; a device or a pipe cannot be replaced by renaming."""
    path = Path(output)
    return output != "-" and (path.is_dir() or path.is_file() or not path.exists())


@contextmanager
def open_output(
    name: str | None, inputs: Mapping[str, str], identity: Mapping[str, Any]
) -> Iterator[OutputStream]:
    """The output that -o names; None: stdout. A file gets its name if it is left without an error.

    Refused lines are no error of the output. `inputs`: the files, by what they are read for.
    `identity`: the model, the settings, and all else but these that decides on lines. Raises
    UserError: 2 if NAME.part was begun with another identity, 65 if it is damaged, 73 if it cannot
    be written, is being written by another process, or was left by something else.
    """
    if name is None or name == "-":
        yield OutputStream(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    is_file = _is_file(name)
    hashes = {use: _hash(path) for use, path in inputs.items() if is_file}
    try:
        if is_file:
            output: OutputStream = ResumableOutput(Path(name), {**identity, "text": hashes})
        else:
            output = OutputStream(Path(name).open("wb"))  # noqa: SIM115
    except OSError as error:
        raise outputs.unwritable(name, error) from None
    try:
        yield output
        output.complete()
    except RefusedLinesError:  # after the last line
        output.complete()
        raise
    except BaseException:
        output.abandon()
        raise


def _hash(name: str) -> str | None:
    """The SHA-256 of an input; None: it is no file, and cannot be read twice."""
    if name == "-" or not is_complete(name):
        return None
    return manifest.sha256_of(Path(name))


def write_outputs(table: str, *files: tuple[Path | None, outputs.Writer]) -> None:
    """Show a table, then write its files, each even if stdout or another file cannot be written.

    Raises UserError (74) that names the failed files, or the error of stdout.
    """
    closed: OSError | None = None
    try:
        sys.stdout.write(table)
        sys.stdout.flush()
    except OSError as error:  # its reader may be `head`, and go away
        closed = error
    outputs.write_all(files)
    if closed is not None:
        raise closed
