"""The location of a model: a run's best checkpoint, or a model directory itself."""

import logging
import os
import re
from functools import cache
from pathlib import Path

from nmt import foreign
from nmt.errors import Exit, UserError
from nmt.storage import manifest
from nmt.storage.manifest import VerifiedDirectory

SETTINGS_BESIDE = "settings.json"  # those of a model that was written for another engine
BEST = "best"  # in a run directory: the name of its best checkpoint
STEP = re.compile(r"step-[0-9]{8,}")

log = logging.getLogger(__name__)


def locate(path: Path) -> Path:
    """Return the checkpoint directory that a path means; a run means its best, else its newest."""
    if not path.exists():
        raise UserError(f"{path}: no such directory; give a run or a checkpoint", Exit.NO_INPUT)
    if not path.is_dir():
        raise UserError(
            f"{path}: not a model directory; nmt reads its own model directories only, "
            "and never unpickles",
            Exit.DATA,
        )
    if (path / manifest.NAME).exists() or not (path / "checkpoints").is_dir():
        return path
    pointer, steps = path / BEST, checkpoints(path / "checkpoints")
    if not steps:
        raise UserError(f"{path}: this run has no checkpoint yet", Exit.NO_INPUT)
    name = pointer.read_bytes().strip() if pointer.is_file() else b""
    for step in steps:
        if step.name.encode() == name:
            return step
    if os.path.lexists(pointer) or len(steps) > 1:
        _warn_of_pointer(pointer, steps[-1].name)
    return steps[-1]


@cache  # once in a process: a command may ask for the same run several times
def _warn_of_pointer(pointer: Path, newest: str) -> None:
    log.warning("%s: no best checkpoint is known; using the newest, %s", pointer, newest)


def open_model(checkpoint: Path) -> VerifiedDirectory:
    """Open a model directory; UserError (65) where it is none, or holds a model for other tools."""
    if (checkpoint / SETTINGS_BESIDE).exists():
        raise UserError(
            f"{checkpoint}: written by nmt-export for another engine; nmt-translate and "
            "nmt-evaluate read it, all else needs the model itself",
            Exit.DATA,
        )
    foreign.refuse_foreign(checkpoint)
    return VerifiedDirectory(checkpoint)


def checkpoints(directory: Path) -> list[Path]:
    """List the checkpoint directories, oldest first; none where there is no such directory."""
    if not directory.is_dir():
        return []
    steps = [p for p in directory.iterdir() if STEP.fullmatch(p.name) and p.is_dir()]
    return sorted(steps, key=lambda p: int(p.name.removeprefix("step-")))
