"""Estimates of the disk and time that stages need, stated before they start.

The rates are meant to tell minutes from hours, and enough disk from too little, on machines we do
not know; none is a promise. Sizes of downloads are exact, those of texts rough.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from nmt.errors import Exit, UserError

NETWORK = 10e6  # bytes/s of a download
UNPACK = 50e6  # bytes/s of text taken out of an archive, or copied and hashed
SETS = 20e6  # bytes of the archives that sacreBLEU keeps
SAFETY = 1.1  # free disk per byte that is to be written


class Cost(NamedTuple):
    """Disk and time that are still needed."""

    disk: float = 0  # bytes
    seconds: float = 0


def size(count: float) -> str:
    """Bytes for people."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, least in (("days", 172800), ("hours", 7200), ("minutes", 120)):
        if seconds >= least:
            return f"{seconds / (least / 2):.0f} {unit}"
    return f"{max(1, seconds):.0f} s"


def total(costs: Iterable[Cost]) -> Cost:
    """Of stages one after the other."""
    disk, seconds = zip(*costs, strict=True)
    return Cost(sum(disk), sum(seconds))


def check_disk(root: Path, needed: float) -> None:
    """Raise UserError (74) if a directory is to hold more bytes than its disk has free."""
    there = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if needed * SAFETY > free:
        raise UserError(
            f"{root}: takes about {size(needed)}, but only {size(free)} are free; "
            "make room, or choose another disk by --root",
            Exit.IO,
        )
