"""Lines into and out of a command that streams."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from nmt import atomic
from nmt.data.corpus import opened, raw_lines
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)


def opened_input(name: str) -> AbstractContextManager[BinaryIO]:
    """The bytes of a file (.gz: decompressed) or, for -, of stdin.

    Raises UserError: 66 if it cannot be opened, 65 if a compressed file turns out damaged.
    """
    return nullcontext(sys.stdin.buffer) if name == "-" else opened(Path(name))


def text_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """The lines of a stream as text, each as soon as it has been read.

    What is not UTF-8 becomes U+FFFD, counted in one warning after the last line.
    """
    invalid, first = 0, 0
    for number, line in enumerate(raw_lines(stream), start=1):
        try:
            text = line.raw.decode()
        except UnicodeDecodeError:
            text = line.raw.decode(errors="replace")
            invalid, first = invalid + 1, first or number
        yield text
    if invalid:
        log.warning(
            "%s: lines that are not UTF-8: %d (first: line %d); their wrong bytes became U+FFFD",
            "stdin" if name == "-" else name,
            invalid,
            first,
        )


class Output:
    """Where a command writes: stdout, a device, or a file that appears only when it is complete.

    A file grows as NAME.part beside its final name. If the command fails midway, NAME keeps its
    former content, and NAME.part what was written. Raises UserError (73) if it cannot be made.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name or "-"
        self.records = 0  # written
        self.file: BinaryIO = sys.stdout.buffer
        self.part: Path | None = None

    def __enter__(self) -> Self:
        path = Path(self.name)
        try:
            if self.name != "-" and path.exists() and not path.is_file():
                self.file = path.open("wb")  # a device or a pipe cannot be renamed over
            elif self.name != "-":
                self.part = path.with_name(f"{path.name}.part")
                self.file = self.part.open("wb")
        except OSError as error:
            raise UserError(
                f"{self.name}: {error.strerror}; give a file that can be written", Exit.CANT_CREATE
            ) from None
        return self

    def write(self, record: str) -> None:
        """Write what belongs to one line of the input."""
        self.file.write(record.encode())
        self.records += 1

    def flush(self) -> None:
        """Hand what was written to the reader."""
        self.file.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._complete()
        except BaseException:
            self._abandon()
            raise
        if error is not None:
            self._abandon()

    def _complete(self) -> None:
        self.file.flush()
        if self.part is not None:
            os.fsync(self.file.fileno())
            os.replace(self.part, self.name)  # noqa: PTH105  (one name to watch in tests)
            atomic.sync(self.part.parent)
        if self.name != "-":
            self.file.close()

    def _abandon(self) -> None:
        if self.name == "-":
            return
        with suppress(OSError):  # the disk may be full; the first error is the one to tell
            self.file.close()
        if self.part is not None and self.records:
            log.warning("%s: keeps the %d lines done so far", self.part, self.records)
        elif self.part is not None:
            self.part.unlink(missing_ok=True)
