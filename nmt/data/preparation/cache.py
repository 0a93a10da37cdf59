"""Directories of prepared text: named by their inputs, complete or absent.

A flipped bit in the ids is another id, and trains another model. So every process compares all
files with their manifest before it uses any.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest

log = logging.getLogger(__name__)
DAYS = 7  # for which the parts of a stopped preparation are kept, in case it continues


def fingerprint(facts: Any) -> str:
    """Hash plain values; equal values in any order of keys give the same."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def damage(final: Path) -> str | None:
    """Return what is wrong with a directory, in one line that names it; None if it is undamaged."""
    if not final.is_dir():
        return f"{final}: is not there"
    try:
        manifest.VerifiedDirectory(final, "a prepared corpus").verify()
    except UserError as error:
        return str(error)
    return None


def ensure(final: Path, make: Callable[[Path, Path], None], inputs: str = "") -> bool:
    """Make a directory unless it exists undamaged; return whether this call made it.

    One process makes it, others wait. A damaged one is renamed `corrupt.NAME`.
    `make` gets two directories: one to fill, which becomes `final`, and one for the parts of the
    work (see `part`). If it is stopped, the next call with the same `inputs` finds all finished
    parts again. Raises UserError: 73 if nothing can be written there; 74 if the disk is full or
    fails.
    """
    if (wrong := damage(final)) is None:
        return False
    with _locked(final, wrong):
        if (wrong := damage(final)) is None:  # another process has made it meanwhile
            return False
        if final.exists():
            log.warning("%s; kept as corrupt.%s; the corpus is prepared anew", wrong, final.name)
        work = atomic.temporary_of(final, fingerprint(inputs)[:32])
        finished = False
        try:
            _sweep(final, work)
            if work.exists():
                log.info("%s: the preparation was stopped, and goes on where it was", final)
            work.mkdir(exist_ok=True)
            with manifest.directory(final) as directory:
                make(directory, work)
                if final.exists():
                    aside = final.with_name(f"corrupt.{final.name}")
                    if aside.exists():  # damaged again
                        atomic.discard(aside)
                    final.rename(aside)
            finished = True
        except OSError as error:
            raise UserError(
                f"{error.filename or final}: {error.strerror or error}; make room or mend the "
                "disk, then start again",
                Exit.IO,
            ) from None
        except UserError as error:
            finished = error.code == Exit.DATA  # the text must change, and then the inputs do
            raise
        finally:
            if finished or not _has_parts(work):
                shutil.rmtree(work, ignore_errors=True)
        return True


def part(path: Path, make: Callable[[Path], object]) -> manifest.VerifiedDirectory:
    """Return a part of the work; `make` fills its directory unless it was finished before."""
    try:
        part = manifest.VerifiedDirectory(path)
        part.verify()
    except UserError:  # absent or damaged
        shutil.rmtree(path, ignore_errors=True)
        with manifest.directory(path, durable=False) as directory:
            make(directory)
        part = manifest.VerifiedDirectory(path)
    return part


@contextmanager
def _locked(final: Path, wrong: str) -> Iterator[None]:
    """Hold the lock of a directory, waiting for a process that makes it now.

    Raises UserError (73) if nothing can be written there, with what is wrong with the directory.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(_lock_of(final))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("%s: another run is preparing it; waiting", final)
            lock.acquire()
    except OSError as error:
        raise UserError(
            f"data.cache={final.parent}: cannot be written ({error.strerror}), but {wrong}; "
            "choose another",
            Exit.CANT_CREATE,
        ) from None
    try:
        yield
    finally:
        lock.release()


def _sweep(final: Path, work: Path) -> None:
    """Remove what stopped runs left, but nothing of a run that is alive and so holds its lock.

    Finished parts are kept for DAYS, in case the preparation continues.
    """
    _lock_of(final).touch()
    current = _lock_of(final).stat().st_mtime  # by the clock of that file system
    for leftover in sorted(final.parent.iterdir()):
        owner = atomic.owner(leftover)
        if owner is None or leftover == work:
            continue
        if owner == final:
            shutil.rmtree(leftover, ignore_errors=True)
        elif not _has_parts(leftover) or current - leftover.stat().st_mtime > DAYS * 86400:
            try:
                with FileLock(_lock_of(owner), timeout=0):
                    shutil.rmtree(leftover, ignore_errors=True)
            except Timeout:
                continue


def _has_parts(work: Path) -> bool:
    return any(work.glob(f"*/{manifest.NAME}"))


def _lock_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")
