"""Parts of a preparation that are done, kept until it is complete: if stopped, it goes on there."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.storage import atomic
from nmt.storage.manifest import sha256_of

WORK = "work"  # folder of a corpus that is being prepared; what is in it is removed at the end
INPUTS = "inputs"  # its file that says what the parts were made from
DONE = ".done"  # ends the name of the record of a part


def keep(record: Path, result: Any, files: Sequence[Path]) -> None:
    """Write the record of a part that is done: plain values, and the sums of the files it wrote.

    The record comes last and at once, so that a kill leaves it whole or absent.
    """
    sums = {path.name: sha256_of(path) for path in files}
    content = json.dumps({"result": result, "files": sums}).encode()
    atomic.replace(record, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)


def kept(record: Path, files: Sequence[Path]) -> Any | None:
    """Give the result of a part; None unless record and files are as they were written."""
    try:
        digest, _, content = record.read_bytes().partition(b"\n")
        if digest != hashlib.sha256(content).hexdigest().encode():
            return None
        value = json.loads(content)
        same = value["files"] == {path.name: sha256_of(path) for path in files}
    except FileNotFoundError:
        return None
    return value["result"] if same else None


def is_begun(directory: Path) -> bool:
    """Whether a part of the corpus that was being prepared in a directory is done."""
    return any((directory / WORK).glob(f"*{DONE}"))


def inputs_of(directory: Path) -> str | None:
    """What the parts were made from, as `begin` noted it; None where they were not begun."""
    try:
        return (directory / WORK / INPUTS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def begin(directory: Path, inputs: str) -> None:
    """Make a directory for a corpus, and note what its parts are made from."""
    (directory / WORK).mkdir(parents=True)
    atomic.replace(directory / WORK / INPUTS, inputs.encode())


def restart(directory: Path) -> None:
    """Remove from a directory what belongs to no part."""
    for path in directory.iterdir():
        if path.is_dir() and path.name != WORK:
            shutil.rmtree(path)
        elif path.name != WORK:
            path.unlink()
