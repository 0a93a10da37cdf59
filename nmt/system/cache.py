"""Directories that are made once and kept: named by their inputs, complete or absent.

They hold prepared text. A flipped bit in the ids is another id, and trains another model. So every
process compares all files with their manifest before it uses any.
"""

import logging
import shutil
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from filelock import FileLock

from nmt.errors import Exit, UserError
from nmt.system import atomic, manifest

log = logging.getLogger(__name__)


def find_damage(final: Path) -> str | None:
    """Say in one line what is wrong with a directory; None if it is undamaged."""
    try:
        if not final.is_dir():
            return f"{final}: is not there"
        manifest.VerifiedDirectory(final, "a prepared corpus").verify()
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
        with manifest.directory(final) as directory:
            make(directory)
    except OSError as error:
        raise UserError(
            f"{error.filename or final}: {error.strerror or error}; make room or mend the "
            "disk, then start again",
            Exit.IO,
        ) from None


def _lock_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")
