"""Files that a command is to write: checked before its work, and written whole after it."""

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from nmt.errors import Exit, UserError
from nmt.system import atomic

BLOCK = bytes(4096)  # written as a trial: an empty file fits a full disk
Writer = Callable[[Path], object]  # writes a file at a path


def check_writable(files: Iterable[Path | None], directories: Iterable[Path | None] = ()) -> None:
    """Try to write each output, so that hours of work do not end at a typo or a full disk.

    None: a file that is not requested; `directories` get files later. Nothing is left behind.
    Raises UserError (73) for an output that cannot be written.
    """
    try:
        for file in filter(None, files):
            if file.exists() and not file.is_file():  # the rename would replace a device
                raise OSError(errno.EINVAL, "not a file", str(file))
            _try_to_write(file, file)
        for folder in filter(None, directories):
            _try_to_write(folder, folder / "file")
    except OSError as error:
        raise unwritable(error.filename, error) from None


def _try_to_write(output: Path, file: Path) -> None:
    """Write a block next to a file of an output, force it to the disk, and remove it again.

    Missing directories are created and removed, too. Raises OSError that names the output.
    """
    missing = [path for path in file.parents if not path.exists()]
    temporary = atomic.temporary_of(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic.name_errors(output):
            temporary.write_bytes(BLOCK)
            atomic.sync(temporary)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
            for path in missing:
                path.rmdir()


def check_new(path: Path) -> None:
    """Raise UserError (73) for an output that exists or cannot be created."""
    if path.exists():
        raise UserError(f"{path}: exists; give another path", Exit.CANT_CREATE)
    check_writable([path])


def unwritable(path: object, error: OSError) -> UserError:
    """Make the UserError (73) of an output that cannot be written."""
    advice = "give a path that can be written"
    return UserError(f"{path}: {error.strerror}; {advice}", Exit.CANT_CREATE)


def write_all(files: Iterable[tuple[Path | None, Writer]]) -> None:
    """Write each file, whole or not at all; those that fail are a UserError (74) at the end."""
    failed, count = [], 0
    for path, writer in files:
        if path is None:
            continue
        count += 1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic.replace(path, writer)
        except OSError as error:
            failed.append(f"{path}: {error.strerror or error}")
    if failed:
        rest = "; all else is written" if len(failed) < count else ""
        raise UserError(f"{'; '.join(failed)}{rest}", Exit.IO)


def text_writer(render: Callable[[], str]) -> Writer:
    """Return a writer of rendered text in UTF-8; half of a surrogate pair becomes ?."""
    return lambda path: path.write_bytes(render().encode(errors="replace"))
