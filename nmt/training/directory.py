"""What a run directory may hold, who holds it, and whether its config is the one at hand.

A directory without a checkpoint is free for any config if it holds only what a first try that
failed leaves behind. Whatever else lies there is somebody's, and nothing is written beside it.
"""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nmt import config
from nmt.errors import Exit, UserError
from nmt.storage import atomic, manifest, modelpath
from nmt.training.checkpoint import DIRECTORY
from nmt.training.progress import BOARD, METRICS
from nmt.training.records import CORRUPT, Record

CONFIG, STATUS, LOG = "config.json", "status.json", "train.log"
LOCK, HOLDER = ".nmt-lock", ".nmt-holder"  # with a mark: a user's own .lock is not ours
MAY_DIFFER = (
    *("trainer.max_epochs", "trainer.max_steps", "trainer.threads", "trainer.log_every"),
    *("trainer.keep_checkpoints", "trainer.tensorboard", "data.workers"),
    *("trainer.gradient_checkpointing", "trainer.deterministic", "decode"),
)  # keys (and groups) that a resumed run may have otherwise; paths, too: see `differences`
START = "trainer.init_from"


def locked(path: Path) -> FileLock:
    """Hold a run directory; raises UserError (exit 73) that names the process that holds it."""
    lock = FileLock(path / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        try:
            holder = (path / HOLDER).read_bytes()[:200].decode("utf-8", "replace").strip()
        except OSError:
            holder = "another process"
        raise UserError(f"{path}: in use by {holder}; wait, or stop it", Exit.CANT_CREATE) from None
    record = Record(path / HOLDER)
    with record.written():
        record.make_way()
        record.path.write_bytes(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
    return lock


def refuse_others(path: Path, elsewhere: str) -> None:
    """Raise UserError (exit 73) for a directory that holds other things, and no run.

    Where the directory of the checkpoints is a file, or a link to what is not mounted: exit 65.
    `elsewhere`: the option that names another directory, as `name=`.
    """
    directory = path / DIRECTORY
    if os.path.lexists(directory) and not directory.is_dir():
        raise UserError(
            f"{directory}: not a directory; restore it, or choose another {elsewhere}", Exit.DATA
        )
    if _has_checkpoints(path):
        return
    if (name := next(_others(path), None)) is not None:
        raise UserError(
            f"{path}: holds {name} and no run of nmt-train; choose another {elsewhere}",
            Exit.CANT_CREATE,
        )


def failed_only(path: Path) -> bool:
    """Whether a directory holds nothing but what a first try that failed leaves behind."""
    return not _has_checkpoints(path) and next(_others(path), None) is None


def check(path: Path, settings: config.Settings, elsewhere: str) -> None:
    """Refuse a directory that is somebody's, or a run that was trained with another config.

    Raises UserError: exit 73 for the former, 2 for the latter, 65 for a lost or damaged config.
    """
    refuse_others(path, elsewhere)
    if not _has_checkpoints(path):
        return
    where = path / CONFIG
    if not where.exists():
        raise UserError(
            f"{where}: missing beside checkpoints; choose another {elsewhere}", Exit.DATA
        )
    old = manifest.read(where)
    if not all(isinstance(old.get(group), dict) for group in config.KINDS):
        raise UserError(f"{where}: not the config of a run; restore it", Exit.DATA)
    try:
        old = config.completed(old)
    except UserError as error:
        raise UserError(f"{where}: {error}", Exit.DATA) from None
    if changes := differences(old, config.freeze(settings)):
        raise UserError(
            f"{where}: another config: {', '.join(changes)}; choose another {elsewhere}"
        )


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List what differs between two plain configs as `key: old -> new`, allowed keys left out.

    Paths may differ: the fingerprint of the data is compared instead, and the weights of
    trainer.init_from; but whether there is a start at all may not.
    """
    before, after = dict(flat(old)), dict(flat(new))
    before["encoding"], after["encoding"] = (
        [*each["encoding"]] if isinstance(each.get("encoding"), dict) else [] for each in (old, new)
    )
    return [
        f"{key}: {_show(before, key)} -> {_show(after, key)}"
        for key in sorted(set(before) | set(after))
        if before.get(key, ...) != after.get(key, ...)
        and key not in MAY_DIFFER
        and key.split(".")[0] not in MAY_DIFFER
        and not (config.is_path(key) and (key != START or (before.get(key) and after.get(key))))
    ]


def _has_checkpoints(path: Path) -> bool:
    directory = path / DIRECTORY
    return bool(modelpath.checkpoints(directory)) or any(directory.glob(f"{CORRUPT}*"))


def _others(path: Path) -> Iterator[str]:
    """What is not left by a run that failed before its first checkpoint; hidden files count."""
    made = {LOCK, HOLDER, LOG, DIRECTORY}
    if {"state", "step"} <= _plain(path / STATUS).keys():
        made |= {STATUS}
    if set(config.KINDS) <= _plain(path / CONFIG).keys():
        made |= {CONFIG, STATUS, METRICS, BOARD, modelpath.BEST}
        made |= {f"{CORRUPT}{name}" for name in made}
    directory = path / DIRECTORY
    inside = sorted(directory.iterdir()) if directory.is_dir() else []
    for there in [*sorted(path.iterdir()), *inside]:
        if atomic.owner(there) is None and (there.parent == directory or there.name not in made):
            yield there.relative_to(path).as_posix()


def _plain(where: Path) -> dict[str, Any]:
    try:
        return manifest.read(where)
    except UserError:
        return {}


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a plain config by dotted key; none of an empty group."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _show(values: dict[str, Any], key: str) -> str:
    value = values.get(key, ...)
    return "absent" if value is ... else value if isinstance(value, str) else json.dumps(value)
