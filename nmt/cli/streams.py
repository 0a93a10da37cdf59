"""Lines into and out of a command that streams."""

import io
import logging
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import Exit, UserError
from nmt.system import outputs
from nmt.text.lines import checked, opened, raw_lines

log = logging.getLogger(__name__)

BLOCK = 2**16  # bytes read at once
PATIENCE = 0.05  # seconds after which a pipe that gives no further line waits for an answer


def prepare_standard_streams() -> None:
    """Make the standard streams ready for any text, and keep their places from other files.

    Of a stream that is closed (`<&-`), the next file to be opened would take the place, and get
    what is meant for the stream; Python has None for it then. What the encoding of stdout does not
    have is written as \\xNN: a table is of more use so than not at all.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def opened_input(name: str) -> AbstractContextManager[Iterable[bytes]]:
    """The lines of a file (as `opened` reads it) or, for -, of stdin.

    Raises UserError: 66 if it cannot be opened, 65 if a compressed file turns out damaged.
    """
    if name == "-" and sys.stdin is None:
        raise UserError("stdin is closed; name a file to read", Exit.NO_INPUT)
    return nullcontext(sys.stdin.buffer) if name == "-" else opened(Path(name))


def input_name(name: str) -> str:
    """The name of an input in messages."""
    return "stdin" if name == "-" else name


def is_complete(name: str) -> bool:
    """Whether an input's lines are all there, as those of a file; a pipe's may follow on an answer.

    So are those of a stdin that is a stream of Python's own.
    """
    if name != "-":
        return Path(name).is_file()
    try:
        return stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return True


class IncomingLines:
    """The lines of a terminal or a pipe, each as soon as it has come."""

    def __init__(self, descriptor: int, before_waiting: Callable[[], None]) -> None:
        """`before_waiting` is called where no line is there yet: its writer may want answers."""
        self._descriptor, self._before_waiting = descriptor, before_waiting
        self._lines = deque[bytes]()
        self._parts: list[bytes] = []  # of a line that has not ended
        self._ended = False

    @classmethod
    def at(cls, name: str, before_waiting: Callable[[], None]) -> "IncomingLines | None":
        """That of stdin for -; None where all lines are there."""
        if name != "-" or is_complete(name):
            return None
        return cls(sys.stdin.fileno(), before_waiting)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self._lines:
            if self._ended:
                raise StopIteration
            if not self._readable(0):
                self._before_waiting()
            self._read()
        return self._lines.popleft()

    def waits(self) -> bool:
        """Whether a further line, or the end, is there or comes within PATIENCE seconds."""
        while not (self._lines or self._ended) and self._readable(PATIENCE):
            self._read()
        return bool(self._lines) or self._ended

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def _read(self) -> None:
        block = os.read(self._descriptor, BLOCK)
        self._ended = not block
        *ended, rest = block.split(b"\n")
        for line in ended:
            self._lines.append(b"".join([*self._parts, line, b"\n"]))
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        if self._ended and self._parts:
            self._lines.append(b"".join(self._parts))


def text_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a stream as text, each as soon as it has been read.

    What is not UTF-8 becomes U+FFFD, counted in one warning after the last line. Raises UserError
    (65) for a stdin that is compressed, or no text in UTF-8.
    """
    label = input_name(name)
    invalid, first = 0, 0
    if name == "-":  # of a file, its head was looked at when it was opened
        stream = checked(stream, label)
    for number, line in enumerate(raw_lines(stream), start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode(errors="replace")
            invalid, first = invalid + 1, first or number
        yield text
    if invalid:
        log.warning(
            "%s: lines that are not UTF-8: %d (first: line %d); their wrong bytes became U+FFFD",
            *(label, invalid, first),
        )


def sample_lines(name: str | None) -> list[str] | None:
    """All lines of a file or of stdin, without their ends; None for no name."""
    if name is None:
        return None
    with opened_input(name) as stream:
        return list(text_lines(stream, name))


def write_outputs(table: str, *files: tuple[Path | None, outputs.Writer]) -> None:
    """Show a table, then write its files; none is lost where others, or stdout, cannot be had.

    Raises UserError (74) that names the files which failed, and what stdout raised.
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


class OutputStream:
    """Where a command writes that keeps nothing: stdout, a device or a pipe."""

    lines = 0  # of the input that need not be done again

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, record: str) -> None:
        """Write what belongs to one line of the input."""
        self.file.write(record.encode())

    def flush(self) -> None:
        """Hand what was written to the reader."""
        self.file.flush()

    def advance(self, progress: Any) -> None:
        """Hand what was written to the reader; where it came from is not kept."""
        self.flush()


@contextmanager
def plain_output(name: str | None) -> Iterator[OutputStream]:
    """A device or a pipe, or stdout where none is named; UserError (73) if it cannot be opened."""
    if name in (None, "-"):
        yield OutputStream(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        file = Path(str(name)).open("wb")  # noqa: SIM115
    except OSError as error:
        raise outputs.unwritable(str(name), error) from None
    try:
        yield OutputStream(file)
        file.flush()
    finally:
        with suppress(OSError):  # the disk may be full; the first error is the one to tell
            file.close()
