"""What a run directory may hold, and which process holds it.

| file | written by | |
|---|---|---|
| config.json | `Run.begin` | with the checkpoints, all that resumption reads |
| checkpoints/ | `Checkpoints.save` | step-NNNNNNNN/, each with a manifest |
| best | `Checkpoints.save` | the name of the best checkpoint, a hint |
| metrics.jsonl, tb/, train.log | `reports` | for people and scripts: nothing relies on them |
| .nmt-lock, .nmt-holder | `held` | the lock, and the process that has it |

A directory without a checkpoint is free for any config if it holds only what a first try that
failed leaves behind. Any other file there belongs to the user, and nothing is written next to it.
"""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from nmt import modeldir
from nmt.errors import Exit, UserError
from nmt.storage import atomic
from nmt.training.checkpoint import CORRUPT, DIRECTORY
from nmt.training.reports import BOARD, LOG, METRICS, write_hint

CONFIG = "config.json"
LOCK, HOLDER = ".nmt-lock", ".nmt-holder"  # with a mark: a user's own .lock is not ours


@contextmanager
def held(path: Path, elsewhere: str) -> Iterator[None]:
    """Make a run directory or take over one, and keep other processes out of it in this context.

    One that was made for a run which does not begin is removed again, with those above it.
    Raises UserError: 73 if it cannot be written, is in use, or holds other things than a run; 65
    if its checkpoints cannot be reached. `elsewhere`: the option that names another directory.
    """
    try:
        new = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        _refuse_others(path, elsewhere)
        lock = _lock(path)
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror}; choose another {elsewhere}", Exit.CANT_CREATE
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            (path / HOLDER).unlink(missing_ok=True)
            if new and not (path / CONFIG).exists() and not any(_others(path)):
                shutil.rmtree(path)
                for above in new[1:]:
                    above.rmdir()
        lock.release()


def _lock(path: Path) -> FileLock:
    """Lock a run directory; raises UserError (exit 73) that names the process that holds it."""
    lock = FileLock(path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        try:
            holder = (path / HOLDER).read_bytes()[:200].decode("utf-8", "replace").strip()
        except OSError:
            holder = "another process"
        raise UserError(f"{path}: in use by {holder}; wait, or stop it", Exit.CANT_CREATE) from None
    holder = f"process {os.getpid()} on {socket.gethostname()}\n"
    write_hint(path / HOLDER, holder.encode())
    return lock


def config_is_settled(path: Path) -> bool:
    """Whether a run directory has checkpoints, intact or not: another config is refused."""
    directory = path / DIRECTORY
    return bool(modeldir.checkpoints(directory)) or any(directory.glob(f"{CORRUPT}*"))


def _refuse_others(path: Path, elsewhere: str) -> None:
    """Raise UserError (exit 73) for a directory that holds other things, and no run.

    Where the directory of the checkpoints is a file, or a link to what is not mounted: exit 65.
    """
    directory = path / DIRECTORY
    if os.path.lexists(directory) and not directory.is_dir():
        raise UserError(
            f"{directory}: not a directory; restore it, or choose another {elsewhere}", Exit.DATA
        )
    if not config_is_settled(path) and (name := next(_others(path), None)) is not None:
        raise UserError(
            f"{path}: holds {name} and no run of nmt-train; choose another {elsewhere}",
            Exit.CANT_CREATE,
        )


def _others(path: Path) -> Iterator[str]:
    """Files that no run leaves that failed before its first checkpoint; hidden ones count."""
    ours = {LOCK, HOLDER, LOG, DIRECTORY}
    if modeldir.recognise(path) is modeldir.OWN:  # training had begun
        ours |= {CONFIG, METRICS, BOARD, modeldir.BEST}
    directory = path / DIRECTORY
    inside = sorted(directory.iterdir()) if directory.is_dir() else []
    for other in [*sorted(path.iterdir()), *inside]:
        if atomic.owner(other) is None and (other.parent == directory or other.name not in ours):
            yield other.relative_to(path).as_posix()
