"""Lines into and out of a command that streams."""

import io
import logging
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from nmt.errors import Exit, UserError
from nmt.text.lines import check_stream, open_lines, raw_lines

log = logging.getLogger(__name__)


def prepare_standard_streams() -> None:
    """Make the standard streams ready for any text, and keep their descriptors from other files.

    If a stream is closed (`<&-`), Python has None for it, and the next file to be opened would get
    its descriptor, and what is written to it. Characters that the encoding of stdout lacks are
    written as \\xNN, so that a table can be shown at all.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def open_input(name: str) -> AbstractContextManager[Iterable[bytes]]:
    """The lines of a file (as `open_lines` reads it) or, for -, of stdin.

    Raises UserError: 66 if it cannot be opened, 65 if a compressed file turns out damaged.
    """
    if name == "-" and sys.stdin is None:
        raise UserError("stdin is closed; name a file to read", Exit.NO_INPUT)
    return nullcontext(sys.stdin.buffer) if name == "-" else open_lines(Path(name))


def is_complete(name: str) -> bool:
    """Whether all lines of an input exist, as in a file; a pipe may wait for our output.

    A stdin that is a Python object and no descriptor counts as complete.
    """
    if name != "-":
        return Path(name).is_file()
    try:
        return stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):
        return True


def is_typed(name: str) -> bool:
    """Whether a person types the lines of an input on a terminal."""
    return name == "-" and sys.stdin.isatty()


def prompt(stream: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a terminal, each after a prompt on stderr."""
    lines = iter(stream)
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        if not (line := next(lines, b"")):
            sys.stderr.write("\n")
            return
        yield line


def text_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a stream as text, each as soon as it has been read.

    What is not UTF-8 becomes U+FFFD, counted in one warning after the last line. Raises UserError
    (65) for a stdin that is compressed, or no text in UTF-8.
    """
    label = "stdin" if name == "-" else name
    invalid, first = 0, 0
    if name == "-":  # of a file, its head was looked at when it was opened
        stream = check_stream(stream, label)
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
            label,
            invalid,
            first,
        )


def sample_lines(name: str | None) -> list[str] | None:
    """All lines of a file or of stdin, without their ends; None for no name."""
    if name is None:
        return None
    with open_input(name) as stream:
        return list(text_lines(stream, name))
