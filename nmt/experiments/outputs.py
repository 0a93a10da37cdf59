"""What commands that compare systems write, and what their files say of how they were made."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt import __version__, atomic, figure
from nmt.errors import Exit, UserError

PACKAGES = ("sacrebleu", "sacremoses", "numpy")  # on which scores depend


def prepare(files: Sequence[Path | None], plot: Path | None) -> None:
    """Make the directories of outputs, so that hours of work do not end at a typo.

    None stands for a file that was not asked for. Raises UserError: 73 for a directory that
    cannot be made, 2 if a plot cannot be drawn.
    """
    if plot:
        figure.check(plot)
    for directory in [path.parent for path in (*files, plot) if path]:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{directory}: {error.strerror}; name a directory that can be made",
                Exit.CANT_CREATE,
            ) from None


def write(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all; raises UserError (73)."""
    try:
        atomic.replace(path, data)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", Exit.CANT_CREATE) from None


def sources(files: Mapping[str, Path | None]) -> dict[str, Any]:
    """Versions of all that computes scores, and place and SHA-256 of the files that were read."""
    return {
        "versions": {"nmt": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        "files": {
            name: {"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for name, path in files.items()
            if path
        },
    }
