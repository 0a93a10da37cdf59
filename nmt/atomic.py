"""Files and directories that are whole or absent, whatever kills the process or the power.

The temporary name lies beside the final one, so that the rename never crosses a file system;
data is forced to disk before the name appears, and the name before anything older is removed.
Temporary names bear a mark, `.nmt-stray-` and a random number, that no user gives to a file:
only what bears it is ever swept away.
"""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

STRAY = re.compile(r"\.nmt-stray-[0-9a-f]{32}\.(?P<name>.+)", re.DOTALL)


def write(path: Path, data: bytes) -> None:
    """Write a file and wait until its data is on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync(directory: Path) -> None:
    """Wait until a directory's names are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part."""
    temporary = temporary_of(path)
    try:
        write(temporary, data)
        os.replace(temporary, path)  # noqa: PTH105  (one name to watch in tests)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def directory(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Make a directory of files that appears at once; the path must not exist."""
    temporary = temporary_of(path)
    try:
        temporary.mkdir()
        for name, data in files:
            write(temporary / name, data)
        sync(temporary)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync(path.parent)


def discard(path: Path) -> None:
    """Remove a directory; a kill midway leaves a stray, which nobody takes for the whole."""
    doomed = temporary_of(path)
    os.rename(path, doomed)  # noqa: PTH104
    shutil.rmtree(doomed)


def sweep(directory: Path) -> None:
    """Remove what killed writers left in a directory; nobody else may be writing there."""
    for stray in sorted(directory.iterdir()):
        if owner(stray) is not None:
            if stray.is_dir() and not stray.is_symlink():
                shutil.rmtree(stray)
            else:
                stray.unlink()


def temporary_of(path: Path) -> Path:
    """Return a name beside a path, for what is not whole yet or no longer."""
    return path.with_name(f".nmt-stray-{uuid4().hex}.{path.name}")


def owner(path: Path) -> Path | None:
    """Return what a temporary name was made for; None if it is not one of ours."""
    marked = STRAY.fullmatch(path.name)
    return path.with_name(marked["name"]) if marked else None
