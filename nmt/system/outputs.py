"""Files that a command is to write: checked before its work, and written whole after it."""

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from nmt.errors import Exit, UserError
from nmt.system import atomic

BLOCK = bytes(4096)  # written where a place is tried: an empty file fits a full disk
Writer = Callable[[Path], object]  # writes a file at a path


def check_writable(files: Iterable[Path | None], directories: Iterable[Path | None] = ()) -> None:
    """Try to write each output, so that hours of work do not end at a typo or a full disk.

    None stands for a file that is not requested; `directories` get files later. Nothing is left
    behind. Raises UserError: 73 for what cannot be written.
    """
    places = {path: path for path in files if path}
    places |= {folder: atomic.temporary_of(folder / "file") for folder in directories if folder}
    for named, path in places.items():
        try:
            _try_place(path, named)
        except OSError as error:
            raise unwritable(error.filename, error) from None


def _try_place(path: Path, named: Path) -> None:
    """Write a block next to a path, and force it to the disk; leaves nothing behind.

    Missing parent directories are made, and removed again. Raises OSError with the name of the
    output, or of the file that stands in its way.
    """
    if path.exists() and not path.is_file():  # the rename would take the place of a device
        raise OSError(errno.EINVAL, "not a file", str(path))
    missing = [parent for parent in path.parents if not parent.exists()]
    temporary = atomic.temporary_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.name_errors(named):
            temporary.write_bytes(BLOCK)
            atomic.sync(temporary)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            for parent in missing:
                parent.rmdir()


def check_new(path: Path) -> None:
    """Refuse to make what is there, or cannot be made; raises UserError (73)."""
    if path.exists():
        raise UserError(f"{path}: exists; give another place", Exit.CANT_CREATE)
    check_writable([path])


def unwritable(path: object, error: OSError) -> UserError:
    """The error of an output that cannot be written (73)."""
    advice = "give a place that can be written"
    return UserError(f"{path}: {error.strerror}; {advice}", Exit.CANT_CREATE)


def write_all(files: Iterable[tuple[Path | None, Writer]]) -> None:
    """Write every file, whole or not at all, as its writer does; one that fails stops no other.

    Raises UserError (74) that names those which failed.
    """
    failed, requested = [], [(path, writer) for path, writer in files if path is not None]
    for path, writer in requested:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace(path, writer)
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    if failed:
        rest = "; all else is written" if len(failed) < len(requested) else ""
        raise UserError(f"{'; '.join(failed)}{rest}", Exit.IO)


def text_writer(render: Callable[[], str]) -> Writer:
    """Return what renders a text and writes it in UTF-8; half of a surrogate pair becomes ?."""
    return lambda path: path.write_bytes(render().encode(errors="replace"))
