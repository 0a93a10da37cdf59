"""The record of a finished run: one file, from which all its scores can be computed again.

Neither weights nor translations: settings, how it learned, and counts of each test line.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.storage import atomic

ABOUT = "about"

Table = NDArray[Any]
"""By test line: [lines] or [lines, columns].

source, reference: lengths in pieces; BLEU, chrF2, TER, exact: counts of `compare.scores`; repeats:
repeated 4-grams and all; likelihood: natural logarithm of the reference's probability, and its
pieces; losses: `compare.losses.loss_counts`; parts: [lines, parts, 4], of joined lines the columns
of `compare.undertranslation.PartCounts` (left_out: -1 for None), all 0 where a line has fewer.
"""


class RunRecord(NamedTuple):
    """What one run leaves."""

    about: dict[str, Any]
    tests: dict[str, dict[str, Table]]  # name of the test set -> name of the table -> table


def write(path: Path, record: RunRecord) -> None:
    """Write a record; raises OSError. The same record gives the same bytes."""
    arrays: dict[str, Any] = {
        f"{test}/{name}": smallest(table)
        for test, by_name in record.tests.items()
        for name, table in by_name.items()
    }
    arrays[ABOUT] = np.frombuffer(json.dumps(record.about, indent=1).encode(), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.replace_by(path, lambda file: np.savez_compressed(file, **arrays))


def read(path: Path) -> RunRecord:
    """The record in a file; raises OSError."""
    tests: dict[str, dict[str, Table]] = {}
    with np.load(path) as file:
        about = json.loads(file[ABOUT].tobytes())
        for key in file.files:
            test, slash, name = key.partition("/")
            if slash:
                tests.setdefault(test, {})[name] = file[key]
    return RunRecord(about, tests)


def smallest(table: Table) -> Table:
    """Whole numbers in as few bytes as hold them all; others in 32 bits."""
    whole = np.rint(table)
    if not np.array_equal(whole, table):
        return table.astype(np.float32)
    least, greatest = (int(whole.min()), int(whole.max())) if whole.size else (0, 0)
    return whole.astype(np.min_scalar_type(greatest if least >= 0 else min(least, -1 - greatest)))
