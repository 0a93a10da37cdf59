"""The files of a comparison: their places checked before the work, written whole after it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nmt.errors import Exit, UserError
from nmt.system import atomic

Writer = Callable[[Path], object]  # writes a file at a path


def check_writable(files: Iterable[Path | None], directories: Iterable[Path | None] = ()) -> None:
    """Try to write each output, so that hours of work do not end at a typo or a full disk.

    None stands for a file that is not wanted; files get into `directories` later. Nothing is left
    behind. Raises UserError: 73 for what cannot be written.
    """
    places = {path: path for path in files if path}
    places |= {
        directory: atomic.temporary_of(directory / "file") for directory in directories if directory
    }
    for named, path in places.items():
        try:
            atomic.try_place(path)
        except OSError as error:
            wrong = named if error.filename == str(path) else error.filename
            raise unwritable(wrong, error) from None


def check_new(path: Path) -> None:
    """Refuse to make what is there, or cannot be made; raises UserError (73)."""
    if path.exists():
        raise UserError(f"{path}: exists; give another place", Exit.CANT_CREATE)
    check_writable([path])


def unwritable(path: object, error: OSError) -> UserError:
    """The error of an output that cannot be written (73)."""
    return UserError(
        f"{path}: {error.strerror}; give a place that can be written", Exit.CANT_CREATE
    )


def write_all(files: Iterable[tuple[Path | None, Writer]]) -> None:
    """Write every file, whole or not at all, as its writer does; one that fails stops no other.

    Raises UserError (74) that names those which failed.
    """
    failed, requested = [], [(path, writer) for path, writer in files if path is not None]
    for path, writer in requested:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace_by(path, writer)
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    if failed:
        rest = "; all else is written" if len(failed) < len(requested) else ""
        raise UserError(f"{'; '.join(failed)}{rest}", Exit.IO)


def text_writer(render: Callable[[], str]) -> Writer:
    """The writer of a text."""
    return lambda path: path.write_bytes(render().encode(errors="replace"))


def as_json(plain: dict[str, Any]) -> str:
    """The text of a JSON file."""
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
