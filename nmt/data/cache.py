"""Directories of prepared corpora: named by what went in, complete or not there at all."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from filelock import FileLock, Timeout

from nmt import atomic
from nmt.data.store import write_json
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"


def fingerprint(facts: Any) -> str:
    """Hash plain values; equal values in any order of keys give the same."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(final: Path) -> Iterator[None]:
    """Hold the lock of a directory to be, waiting for whoever makes it now.

    Raises UserError (73) if nothing can be written beside it.
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
            f"data.cache={final.parent}: cannot be written ({error.strerror}); choose another",
            Exit.CANT_CREATE,
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def fresh(final: Path) -> Iterator[Path]:
    """Give a directory to fill, that becomes `final` if all goes well and vanishes if not.

    The lock of `final` must be held. What a killed run left is removed. UserError (74) if the
    disk is full or fails.
    """
    temporary = final.with_name(f"{final.name}.tmp-{uuid4().hex[:8]}")
    try:
        _remove_leftovers(final.parent, final)
        temporary.mkdir()
        yield temporary
        _finish(temporary, final)
    except OSError as error:
        where = error.filename or temporary
        raise UserError(
            f"{where}: {error.strerror or error}; make room or mend the disk, then start again",
            Exit.IO,
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_complete(final: Path) -> bool:
    """Tell whether a directory is there, with all files of its manifest, of their sizes."""
    if not final.is_dir():
        return False
    try:
        sizes = json.loads((final / MANIFEST).read_bytes())["sizes"]
        if _sizes(final) == sizes:
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass
    log.warning("%s: is damaged, and made anew", final)
    return False


def _finish(temporary: Path, final: Path) -> None:
    write_json(temporary / MANIFEST, {"sizes": _sizes(temporary)})
    _sync_all(temporary)
    if final.exists():  # damaged: is_complete said so
        shutil.rmtree(final)
    temporary.rename(final)
    atomic.sync(final.parent)


def _sync_all(directory: Path) -> None:
    """Bring all files below a directory to the disk, so that a power cut cannot empty them."""
    for folder, _, names in os.walk(directory):
        for name in names:
            atomic.sync(Path(folder) / name)
        atomic.sync(Path(folder))


def _sizes(directory: Path) -> dict[str, int]:
    return {
        path.relative_to(directory).as_posix(): path.stat().st_size
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def _remove_leftovers(cache: Path, ours: Path) -> None:
    """Remove what killed runs left, but nothing of a run that is alive and so holds its lock."""
    for leftover in cache.glob("*.tmp-*"):
        owner = leftover.with_name(leftover.name.rpartition(".tmp-")[0])
        if owner == ours:
            shutil.rmtree(leftover, ignore_errors=True)
            continue
        try:
            with FileLock(_lock_of(owner), timeout=0):
                shutil.rmtree(leftover, ignore_errors=True)
        except Timeout:
            continue


def _lock_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")
