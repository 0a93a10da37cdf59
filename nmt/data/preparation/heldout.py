"""Development text that is held out of the training text, for corpora that have none."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from nmt.config import Data, Files
from nmt.data.corpus import opened, raw_lines, side_file
from nmt.data.preparation import cache
from nmt.data.preparation.scan import check_parallel, scan
from nmt.data.store import SIDES
from nmt.errors import Exit, UserError

log = logging.getLogger(__name__)
Pair = tuple[bytes, bytes]  # a source and its target, without line ends


def held_out(data: Data) -> Data:
    """Return the corpus with development text cut out of its training text, if it has dev_lines.

    data.dev_lines pairs, evenly spread, become files of their own. Wherever one of them occurs in
    the training text, its line is empty on both sides of the files to train on, so that all lines
    keep their numbers. The files are in a directory of data.cache, named by the content of the
    text. Raises UserError: 65 and 66 as for any text, 65 for more than half of its lines, 73 and 74
    as `cache.ensure`.
    """
    if not isinstance(data, Files) or (dev_lines := data.dev_lines) is None:
        return data
    paths = [
        side_file(getattr(data, f"train_{side}"), f"set data.root or data.train_{side}")
        for side in SIDES
    ]
    source, target = (scan(path) for path in paths)
    check_parallel(source, target)
    if 2 * dev_lines > source.lines:
        raise UserError(
            f"data.dev_lines={data.dev_lines}: {source.path} has {source.lines} lines; hold out "
            "half of them at most",
            Exit.DATA,
        )
    digest = cache.fingerprint([source.sha256, target.sha256, data.dev_lines])
    final = Path(data.cache) / f"{data.name}-held-out-{digest[:12]}"

    def make(directory: Path) -> None:
        log.info("holding %s pairs out of %s: %s", data.dev_lines, paths[0], final)
        emptied = _write(directory, paths, source.lines, dev_lines)
        log.info("lines of the training text that hold one of these pairs: %s", emptied)

    cache.ensure(final, make)
    files: dict[str, Any] = {
        f"{split}_{side}": str(final / f"{split}.{side}") for split, side in _NAMES
    }
    return replace(data, dev_lines=None, **files)


_NAMES = [(split, side) for split in ("train", "dev") for side in SIDES]


def _write(directory: Path, paths: list[Path], lines: int, number: int) -> int:
    """Write the four files, in two passes over the text; returns how many lines are emptied."""
    emptied = 0
    rows = {lines * i // number for i in range(number)}
    held = {pair for row, pair in zip(count(), _pairs(paths), strict=False) if row in rows}
    with ExitStack() as stack:
        outputs = {
            name: stack.enter_context((directory / ".".join(name)).open("wb")) for name in _NAMES
        }
        for row, pair in enumerate(_pairs(paths)):
            emptied += pair in held
            for side, text in zip(SIDES, pair, strict=True):
                outputs["train", side].write((b"" if pair in held else text) + b"\n")
                if row in rows:
                    outputs["dev", side].write(text + b"\n")
    return emptied


def _pairs(paths: list[Path]) -> Iterator[Pair]:
    with opened(paths[0]) as sources, opened(paths[1]) as targets:
        for source, target in zip(raw_lines(sources), raw_lines(targets), strict=True):
            yield source.raw, target.raw
