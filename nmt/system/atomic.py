"""Files and directories that are whole or absent, whatever kills the process or the power.

The temporary name is in the directory of the final one: the rename never crosses a file system;
data is forced to disk before the name appears, and the name before anything older is removed.
Temporary names bear a mark, `.nmt-stray-` and a random number, that no user gives to a file:
only what bears it is ever swept away.
"""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

log = logging.getLogger(__name__)

STRAY = re.compile(r"\.nmt-stray-[0-9a-f]{32}\.(?P<name>.+)", re.DOTALL)


def sync(path: Path) -> None:
    """Wait until a directory's names, or a file's data, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def name_errors(path: Path) -> Iterator[None]:
    """Let an OSError have the path as its file name, instead of a temporary one or none."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def replace(path: Path, content: bytes | Callable[[Path], object]) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    `content`: bytes, or a function that writes the file at a temporary path with the same ending.
    """
    temporary = temporary_of(path)
    try:
        with name_errors(path):
            if isinstance(content, bytes):
                temporary.write_bytes(content)
            else:
                content(temporary)
            move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def move(complete: Path, path: Path) -> None:
    """Rename a complete file, over an older one; data and name are on the disk afterwards."""
    sync(complete)
    os.replace(complete, path)  # noqa: PTH105  (one name to watch in tests)
    sync(path.parent)


@contextmanager
def temporary_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory beside a path, removed at the end, or by `sweep` after a kill."""
    temporary = temporary_of(path)
    try:
        with name_errors(path):
            temporary.mkdir()
            yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def hold_lock(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock file, whose directory is created; log `waiting` if another process holds it."""
    from filelock import FileLock, Timeout  # here, since few need it

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        log.info("%s", waiting)
        held = lock.acquire()
    with held:
        yield


def discard(path: Path) -> None:
    """Remove a directory, or leave a temporary name at a kill; OSError if it is read-only."""
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    doomed = temporary_of(path)
    os.rename(path, doomed)  # noqa: PTH104
    shutil.rmtree(doomed)


def sweep(directory: Path) -> None:
    """Remove temporary files of killed processes; no other process may be writing there.

    One that cannot be removed, such as a file that is open on NFS, is a warning.
    """
    for stray in filter(owner_of, sorted(directory.iterdir())):
        try:
            if stray.is_dir() and not stray.is_symlink():
                shutil.rmtree(stray)
            else:
                stray.unlink()
        except OSError as error:
            log.warning("%s: cannot be removed: %s", stray, error.strerror)


def temporary_of(path: Path) -> Path:
    """Return a random name next to a path, for a file that is not complete yet, or no longer."""
    return path.with_name(f".nmt-stray-{uuid4().hex}.{path.name}")


def owner_of(path: Path) -> Path | None:
    """Return the path for which a temporary name stands; None for any other name."""
    marked = STRAY.fullmatch(path.name)
    return path.with_name(marked["name"]) if marked else None
