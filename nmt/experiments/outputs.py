"""The files of a comparison: their places checked before the work, written whole after it."""

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nmt import __version__, atomic, figure
from nmt.errors import Exit, UserError

PACKAGES = ("sacrebleu", "sacremoses", "numpy")  # on which scores depend


def check_places(files: Iterable[Path | None], plot: Path | None = None) -> None:
    """Make the directories of outputs, so that hours of work do not end at a typo.

    None stands for a file that nobody wants. Raises UserError: 73 for a directory that cannot be
    made, 2 if a plot cannot be drawn.
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


def write(path: Path | None, render: Callable[[], str]) -> None:
    """Write a text, whole or not at all, to a file if there is one; raises UserError (73)."""
    if path is None:
        return
    try:
        atomic.replace(path, render().encode(errors="replace"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", Exit.CANT_CREATE) from None


def draw(path: Path | None, drawn: Callable[[Path], None]) -> None:
    """Draw a picture to a file if there is one; raises UserError (73)."""
    if path is None:
        return
    try:
        drawn(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", Exit.CANT_CREATE) from None


def as_json(plain: dict[str, Any]) -> str:
    """The text of a JSON file."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


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
