"""Files that a run can do without: damage to them, or a full disk, is a warning and no more.

How far a run has come follows from its checkpoints and config.json. All else is a record for
people and reports: metrics.jsonl, train.log, status.json, TensorBoard's files, the pointer `best`.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.storage import atomic

CORRUPT = "corrupt."  # before a name set aside

log = logging.getLogger(__name__)


def free_name(path: Path) -> Path:
    """Return the name under which damaged data is kept in the same directory: `corrupt.NAME`."""
    aside = path.with_name(f"{CORRUPT}{path.name}")
    while os.path.lexists(aside):
        aside = aside.with_name(f"{aside.name}.again")
    return aside


class Record:
    """A file (or directory) of a run that may fail to be written; the first failure is logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False

    @contextmanager
    def written(self) -> Iterator[None]:
        """Write in this context; an OSError ends it, and is logged the first time."""
        try:
            yield
        except OSError as error:
            self.fail(error)

    @contextmanager
    def opened(self, open: Callable[[], Any]) -> Iterator[Any]:
        """Open a file, and close it after this context; None where that raises OSError."""
        file: Any = None
        with self.written():
            file = open()
        try:
            yield file
        finally:
            if file is not None:
                with self.written():
                    file.close()

    def replace(self, data: bytes) -> None:
        """Write the whole file, unless it holds the same."""
        with self.written():
            if not (self.path.exists() and self.path.read_bytes() == data):
                atomic.replace(self.path, data)

    def fail(self, error: OSError) -> None:
        """Log once that the record is no longer complete."""
        if not self.failed:
            self.failed = True
            log.warning(
                "%s: %s; training goes on without it", self.path, error.strerror or str(error)
            )


class LogFile(logging.FileHandler):
    """Appends the lines of the log to a file; where it cannot, says so once on the others."""

    def __init__(self, record: Record) -> None:
        """Open the file; raises OSError."""
        self.record = record
        super().__init__(record.path, encoding="utf-8")
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        """Report a full disk; anything else is handled by logging itself."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.record.fail(error)
        else:
            super().handleError(record)


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append the log of nmt to a file in this context, as far as it can be written."""
    record, logger = Record(path), logging.getLogger("nmt")
    with record.opened(lambda: LogFile(record)) as handler:
        if handler is not None:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
