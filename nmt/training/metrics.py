"""The file metrics.jsonl of a run: one report a line, in JSON, read as far as it can be."""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt.errors import UserError
from nmt.storage import atomic, manifest
from nmt.training.records import Record, free_name

METRICS = "metrics.jsonl"  # in a run directory
NEEDED = {
    "train": {"perplexity", "lr", "tokens_per_second"},
    "dev": {"perplexity"},
    "skipped": set[str](),
    "split": {"splits"},
}  # keys that a line of each kind has in addition to its step

HELD = 2**20  # bytes that wait for room on a full disk

Line = dict[str, Any]

log = logging.getLogger(__name__)


@contextmanager
def metrics_file(path: Path, step: int) -> Iterator[Callable[[Line], None]]:
    """Yield a function that appends a line to the file, as far as it can be written.

    Lines of steps after `step` are cut off first, so that none appears twice after resumption. A
    line about the dev set is on the disk before its checkpoint is.
    """
    record = Record(path)

    def open_file() -> BinaryIO:
        truncate(path, step)
        return path.open("ab", buffering=HELD)

    with record.opened(open_file) as file:

        def write(line: Line) -> None:
            if file is None:
                return
            with record.written():
                file.write(_encode(line))
                file.flush()
                if line["kind"] == "dev":
                    os.fsync(file.fileno())

        yield write


class Metrics(NamedTuple):
    """The lines of metrics.jsonl that can be read."""

    lines: list[Line]
    remark: str  # what cannot be read; "" where nothing is wrong


def read_metrics(path: Path) -> Metrics:
    """Read metrics.jsonl as far as it can be; raises nothing.

    A last line without its end is left out without a remark: it is being written, or a kill has
    cut it.
    """
    try:
        whole = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        return Metrics([], str(error.strerror))
    lines = [line for text in whole if (line := _parse(text, path)) is not None]
    if len(lines) < len(whole):
        return Metrics(lines, f"{len(whole) - len(lines)} of {len(whole)} lines cannot be read")
    return Metrics(lines, "" if lines else "holds no line")


def _parse(text: bytes, where: Path) -> Line | None:
    """A line of metrics.jsonl, if it has what a line of its kind needs."""
    try:
        line = manifest.parse(text, where)
    except UserError:
        return None
    if not isinstance(line, dict) or not isinstance(kind := line.get("kind"), str):
        return None
    numbers = {key: value for key, value in line.items() if key not in ("kind", "lines")}
    known = kind in NEEDED and type(line.get("step")) is int and NEEDED[kind] <= numbers.keys()
    finite = all(type(n) in (int, float) and abs(n) <= sys.float_info.max for n in numbers.values())
    return line if known and finite and line.get("perplexity", 1) > 0 else None


def truncate(path: Path, step: int) -> None:
    """Cut off lines of later steps, and a last line that a kill left unfinished.

    Lines that cannot be read are left out with a warning, and the file that holds them is kept as
    corrupt.metrics.jsonl; so is the file of a training whose checkpoints are gone (`step` is 0).
    """
    lines, remark = read_metrics(path)
    before = path.read_bytes() if path.is_file() else b""
    if not step:
        last = max((line["step"] for line in lines if line["kind"] == "dev"), default=0)
        remark = f"has {last} updates, but no checkpoint is there: begun anew" if last else ""
    if remark and before:
        aside = free_name(path)
        atomic.replace(aside, before)
        log.warning("%s: %s; left out, and kept in %s", path, remark, aside.name)
    data = b"".join(_encode(line) for line in lines if line["step"] <= step)
    if data != before:
        atomic.replace(path, data)


def _encode(line: Line) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"
