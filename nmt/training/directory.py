"""A run directory: the files it may hold, the process that holds it, and the config it is of.

| file | written by | |
|---|---|---|
| config.json | `Run.write_config` | with the checkpoints, all that resumption reads |
| checkpoints/ | `Checkpoints.save` | step-NNNNNNNN/, each with a manifest |
| best | `Checkpoints.save` | the name of the best checkpoint, a hint |
| metrics.jsonl, tb/, train.log | `reports` | for people and scripts: nothing relies on them |
| .nmt-lock, .nmt-holder | `hold_directory` | the lock, and the process that has it |

A directory without a checkpoint is free for any config if it is new, empty, or has the lock of a
first try that failed. In any other the files belong to the user, and nothing is written there.
"""

import json
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nmt import modeldir
from nmt.config.check import flatten, keys_of
from nmt.config.settings import GROUPS, Settings, freeze, is_path
from nmt.errors import Exit, UserError
from nmt.modeldir import CHECKPOINTS, CONFIG, read_config
from nmt.system import atomic, manifest
from nmt.training.checkpoint import CORRUPT, Checkpoints, Saved, newest
from nmt.training.distributed import SINGLE, World
from nmt.training.reports import LOG, write_hint
from nmt.training.schedule import last_step

LOCK, HOLDER = ".nmt-lock", ".nmt-holder"  # names that a user gives to no file
WITHOUT_EFFECT = [  # keys that change no result of a run
    f"{group}.{name}"
    for group, schema in GROUPS.items()
    for name, declared in keys_of(schema).items()
    if not declared.effect
]
MAY_DIFFER = {  # keys and groups that a resumed run may have otherwise; paths, too: `differences`
    *WITHOUT_EFFECT,
    "decode",
    "trainer.compile",  # with a warning: see reports.warn_of_changes
    "trainer.early_stopping",
    "trainer.max_epochs",
    "trainer.max_steps",
}
LANGUAGES = ("decode.source_language", "decode.target_language")  # the model is trained on them
LENGTH_RATIO = "decode.length_ratio"  # scores of translations depend on it
START = "trainer.init_from"
ELSEWHERE = "choose another directory: runs=DIR or, for a single run, name="


@dataclass
class Run:
    """A run directory that this process has locked."""

    path: Path
    settings: Settings
    world: World
    checkpoints: Checkpoints
    saved: Saved | None  # the newest checkpoint, from which training is resumed
    opened: float = field(default_factory=lambda: time.monotonic())

    @property
    def finished(self) -> bool:
        """Whether it needs no further update, be it on this corpus or another."""
        return self.saved is not None and self.saved.is_finished(self.settings.trainer)

    def seconds_left(self) -> float:
        """Until trainer.max_hours are over, counted from the opening of the run."""
        hours = self.settings.trainer.max_hours
        return math.inf if hours is None else hours * 3600 - (time.monotonic() - self.opened)

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from, and so the name belongs to this config."""
        return bool(modeldir.checkpoints(self.checkpoints.directory))

    def write_config(self) -> None:
        """Write config.json, unless it is the same; rank 0 alone does."""
        file, data = self.path / CONFIG, manifest.dump(freeze(self.settings))
        if not self.world.rank and not (file.exists() and file.read_bytes() == data):
            atomic.replace(file, data)


@contextmanager
def open_run(path: Path, settings: Settings, world: World = SINGLE) -> Iterator[Run]:
    """Create or reopen a run directory, and lock it.

    Of several ranks, rank 0 does so for all. Until there is a checkpoint, any config may use it.
    Raises UserError: exit 2 if it was trained with another config, or for an impossible one; 65 if
    none of its checkpoints is intact; 73 if it cannot be written, is in use, or holds other files.
    """
    if (start := settings.trainer.init_from) is not None:
        parent = Path(start).resolve()  # a run, or one of its checkpoints
        if path.resolve() in (parent, parent.parent.parent):
            raise UserError(f"{START}={start}: is the directory of this run itself; {ELSEWHERE}")
    trainer = settings.trainer
    world.device(trainer.device)  # refuses a device that is not there
    world.check(trainer)
    checkpoints = Checkpoints(path, trainer.keep_checkpoints, trainer.keep_best)
    with nullcontext() if world.rank else hold_directory(path):
        if not world.rank and config_is_settled(path):
            old, new = freeze(read_config(path)), freeze(settings)
            if changes := ", ".join(differences(old, new)):
                raise UserError(f"{path / CONFIG}: another config: {changes}; {ELSEWHERE}")
        saved = world.broadcast(checkpoints.recover)
        yield Run(path, settings, world, checkpoints, saved)
    world.barrier()  # torchrun ends all ranks when one ends: not before everything is written


@contextmanager
def hold_directory(path: Path) -> Iterator[None]:
    """Create a run directory or reopen one, and keep other processes out of it meanwhile.

    If no training begins, a new directory is removed again, with the new ones above it.
    Raises UserError: 73 if it cannot be written, is in use, or holds files of something else; 65
    if its checkpoints cannot be reached.
    """
    try:
        new = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        _refuse_other_files(path)
        lock = FileLock(path / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        holder = "another process"
        with suppress(OSError):
            holder = (path / HOLDER).read_bytes()[:200].decode("utf-8", "replace").strip()
        raise UserError(f"{path}: in use by {holder}; wait, or stop it", Exit.CANT_CREATE) from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; {ELSEWHERE}", Exit.CANT_CREATE) from None
    process = f"process {os.getpid()} on {socket.gethostname()}\n"
    write_hint(path / HOLDER, process.encode())
    try:
        yield
    finally:
        with suppress(OSError):  # as where a user has put a file there
            (path / HOLDER).unlink(missing_ok=True)
            if new and not (path / CONFIG).exists():
                for name in (LOG, LOCK):
                    (path / name).unlink(missing_ok=True)
                for directory in (path / CHECKPOINTS, *new):
                    if directory.exists():
                        directory.rmdir()
        lock.release()


def config_is_settled(path: Path) -> bool:
    """Whether a run directory has checkpoints, intact or not: another config is refused."""
    directory = path / CHECKPOINTS
    return bool(modeldir.checkpoints(directory)) or any(directory.glob(f"{CORRUPT}*"))


def _refuse_other_files(path: Path) -> None:
    """Raise UserError for a directory that holds other files and no run (73).

    If the directory of checkpoints is a file, or a link to a disk that is not mounted: 65.
    """
    directory = path / CHECKPOINTS
    if os.path.lexists(directory) and not directory.is_dir():
        reason = f"not a directory; restore it, or {ELSEWHERE}"
        raise UserError(f"{directory}: {reason}", Exit.DATA)
    if config_is_settled(path) or (path / LOCK).exists():
        return
    if file := next(path.iterdir(), None):
        reason = f"holds {file.name} and no run of nmt-train; {ELSEWHERE}"
        raise UserError(f"{path}: {reason}", Exit.CANT_CREATE)


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """List forbidden differences of two plain configs as `key: old -> new`.

    Keys in MAY_DIFFER and paths may differ, since the fingerprint of the data and the weights of
    trainer.init_from are compared instead. A start may not come or go; languages, and target
    lengths if translations are scored, may not change, since the model is trained on them.
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    before["encoding"], after["encoding"] = [*old["encoding"]], [*new["encoding"]]  # their order
    scored = new["trainer"]["dev_metric"] != "perplexity"
    fixed = (*LANGUAGES, LENGTH_RATIO) if scored else LANGUAGES
    return [
        f"{key}: {_show(before, key)} -> {_show(after, key)}"
        for key in sorted(set(before) | set(after))
        if before.get(key, ...) != after.get(key, ...)
        and (key in fixed or not {key, key.split(".")[0]} & MAY_DIFFER)
        and not (is_path(key) and (key != START or (before.get(key) and after.get(key))))
    ]


def _show(values: dict[str, Any], key: str) -> str:
    value = values.get(key, ...)
    return "absent" if value is ... else value if isinstance(value, str) else json.dumps(value)


def progress(path: Path) -> tuple[int, int]:
    """Return a run's newest step and, about, its final one; asks for no lock and changes nothing.

    Raises UserError (exit 65) for a directory that is no run, or has no intact checkpoint yet, and
    for a config.json that is not the one of the checkpoint.
    """
    settings, saved = read_config(path), newest(path)
    if saved is None:
        raise UserError(f"{path}: no checkpoint yet; train it to the end first", Exit.DATA)
    trained = freeze(modeldir.read_settings(saved.path))
    if changes := ", ".join(differences(trained, freeze(settings))):
        reason = f"another config than that of its checkpoints: {changes}; restore it"
        raise UserError(f"{path / CONFIG}: {reason}", Exit.DATA)
    last = max(saved.step + 1, last_step(saved.state["updates"], settings.trainer))
    return saved.step, saved.step if saved.is_finished(settings.trainer) else last
