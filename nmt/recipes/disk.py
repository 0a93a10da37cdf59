"""How much disk the stages need, stated before they start; sizes of downloads are exact."""

import shutil
from pathlib import Path

from nmt.errors import Exit, UserError

SAFETY = 1.1  # free disk per byte that is to be written


def size(count: float) -> str:
    """Bytes for people."""
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count:.0f} B"


def check(root: Path, needed: float) -> None:
    """Raise UserError (74) if a directory is to hold more bytes than its disk has free."""
    there = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if needed * SAFETY > free:
        raise UserError(
            f"{root}: takes about {size(needed)}, but only {size(free)} are free; "
            "make room, or choose another disk by --root",
            Exit.IO,
        )
