"""Directories of prepared corpora: named by what went in, complete or not there at all.

A flipped bit in the ids is another id, and trains another model. So the manifest holds the SHA-256
of each file, and every process compares them all before it uses any.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nmt.data import stages
from nmt.data.store import write_json
from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest
from nmt.storage.manifest import sha256_of

log = logging.getLogger(__name__)
MANIFEST = "manifest.json"
DAYS = 7  # that parts of a preparation wait for it to go on, while others are made
Stamp = tuple[tuple[str, int, int, int, int], ...]  # of a directory, file by file
_verified: dict[Path, Stamp] = {}  # directories that this process has hashed, as they were then


def fingerprint(facts: Any) -> str:
    """Hash plain values; equal values in any order of keys give the same."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(final: Path, wrong: str) -> Iterator[None]:
    """Hold the lock of a directory to be, waiting for whoever makes it now.

    Raises UserError (73) if nothing can be written beside it, with what is wrong with it.
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


@contextmanager
def fresh(final: Path, inputs: str = "") -> Iterator[Path]:
    """Give a directory to fill, that becomes `final` if all goes well.

    The lock of `final` must be held. If the preparation is stopped, what `stages` keeps of it is
    there again at the next one with the same `inputs`, of which all else was removed; what other
    killed runs left is removed. UserError (74) if the disk is full or fails.
    """
    temporary = atomic.temporary_of(final)
    whole = False
    try:
        left = _sweep(final.parent, final, inputs)
        if left is not None:
            log.info("%s: the preparation was stopped, and goes on where it was", final)
            left.rename(temporary)
            stages.restart(temporary)
        else:
            stages.begin(temporary, inputs)
        yield temporary
        _finish(temporary, final)
        whole = True
    except OSError as error:
        where = error.filename or temporary
        raise UserError(
            f"{where}: {error.strerror or error}; make room or mend the disk, then start again",
            Exit.IO,
        ) from None
    except UserError as error:
        whole = error.code == Exit.DATA  # the files must change, and so will the inputs
        raise
    finally:
        if whole or not stages.is_begun(temporary):
            shutil.rmtree(temporary, ignore_errors=True)


def damage(final: Path) -> str | None:
    """Say what is wrong with a directory, in one line that names it; None if nothing is.

    All its files are hashed, once per process: again only if a size, a time or an inode changed.
    """
    try:
        if not final.is_dir():
            return f"{final}: is not there"
        stamp = _stamp(final)
        if _verified.get(final.resolve()) == stamp:
            return None
        wrong = _difference(final)
    except OSError as error:
        return f"{error.filename or final}: {error.strerror or error}"
    if wrong is None:
        _verified[final.resolve()] = stamp
    return wrong


def _difference(final: Path) -> str | None:
    """Name the first file that is not as the manifest says; others are no damage."""
    where = final / MANIFEST
    if not where.is_file():
        return f"{final}: has no {MANIFEST}"
    content, files = where.read_bytes(), _described(final)
    if content == manifest.dump({"files": files}):
        return None
    try:
        known = dict(manifest.parse(content, where)["files"])
    except (UserError, KeyError, TypeError, ValueError):
        known = files  # so that it is the manifest itself
    for name in sorted(known):
        if name not in files or known[name] != files[name]:
            return f"{final / name}: is not as {MANIFEST} says"
    listed = {name: files[name] for name in known}
    return None if content == manifest.dump({"files": listed}) else f"{where}: is damaged"


def _finish(temporary: Path, final: Path) -> None:
    write_json(temporary / MANIFEST, {"files": _described(temporary)})
    shutil.rmtree(temporary / stages.WORK)  # as late as can be: a kill before it loses no part
    _sync_all(temporary)
    if final.exists():  # damaged
        _refuse_others(final, temporary)
        shutil.rmtree(final)
    temporary.rename(final)
    atomic.sync(final.parent)
    _verified[final.resolve()] = _stamp(final)


def _refuse_others(damaged: Path, anew: Path) -> None:
    """Raise UserError (73) for a file that is to be removed, and that this program did not make."""
    for path in sorted(damaged.rglob("*")):
        made = (anew / path.relative_to(damaged)).exists()
        if not made and (path.is_symlink() or not path.is_dir()):
            raise UserError(
                f"{path}: not of this corpus, which is damaged; move it away, so that "
                "the corpus can be made anew",
                Exit.CANT_CREATE,
            )


def _sync_all(directory: Path) -> None:
    """Bring all files below a directory to the disk, so that a power cut cannot empty them."""
    for folder, _, names in os.walk(directory):
        for name in names:
            atomic.sync(Path(folder) / name)
        atomic.sync(Path(folder))


def _described(directory: Path) -> dict[str, dict[str, Any]]:
    return {
        path.relative_to(directory).as_posix(): {
            "sha256": sha256_of(path),
            "bytes": path.stat().st_size,
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path != directory / MANIFEST
        and directory / stages.WORK not in path.parents
    }


def _stamp(directory: Path) -> Stamp:
    """What changes when a file is written, moved or exchanged."""
    stats = [(path, path.stat()) for path in sorted(directory.rglob("*")) if path.is_file()]
    return tuple((str(p), s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for p, s in stats)


def _sweep(cache: Path, ours: Path, inputs: str) -> Path | None:
    """Remove what stopped runs left, but nothing of a run that is alive and so holds its lock.

    Parts of a preparation are kept for DAYS, in case that it goes on; those of `ours` with the same
    `inputs` are given back, without what belongs to no part.
    """
    found = None
    _lock_of(ours).touch()
    now = _lock_of(ours).stat().st_mtime  # by the clock of that file system
    for leftover in sorted(cache.iterdir()):
        owner = atomic.owner(leftover)
        if owner is None:
            continue
        goes_on = stages.is_begun(leftover)
        if owner == ours:
            if goes_on and found is None and stages.inputs_of(leftover) == inputs:
                found = leftover
            else:
                shutil.rmtree(leftover, ignore_errors=True)
            continue
        if goes_on and now - leftover.stat().st_mtime < DAYS * 86400:
            continue
        try:
            with FileLock(_lock_of(owner), timeout=0):
                shutil.rmtree(leftover, ignore_errors=True)
        except Timeout:
            continue
    return found


def _lock_of(final: Path) -> Path:
    return final.with_name(f"{final.name}.lock")
