"""Compares what commands compute with what they did at an earlier commit.

    python tests/outside/pins.py compare [GATE ...]             this checkout with the records
    python tests/outside/pins.py record [--at COMMIT] GATE ...  move a gate to a reference commit

`record` runs the commands of COMMIT in a worktree of its own, with this interpreter and its
packages. A gate's record, tests/outside/pinned/GATE.json, names its reference commit; what depends
on the processor is kept by processor and version of torch, and where `compare` finds no such
values, it records them first. It ends with 1 if anything differs.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.outside import gates
from tests.outside.checkouts import PINNED, Checkout, processor, worktree

SHOWN = 10  # differences of a gate
ABSENT = "absent"  # where one side has no value


class Recorded(NamedTuple):
    """A gate whose values are compared with a record."""

    about: str
    measure: Callable[[Checkout, Path], gates.Values]
    same: Callable[[Any, Any], bool]  # whether a recorded value and one of now are as they must be


class Checked(NamedTuple):
    """A gate that needs no record."""

    about: str
    check: Callable[[Checkout, Path], list[str]]  # what is wrong


def is_equal(recorded: Any, now: Any) -> bool:
    return recorded == now


def is_equal_but_for_rounding(recorded: Any, now: Any) -> bool:
    """Numbers in lines may be apart by .0002: how many rows a batch has decides on last bits."""
    if recorded == now or not (isinstance(recorded, str) and isinstance(now, str)):
        return bool(recorded == now)
    old, new = (re.split(r"(-?\d+\.\d+)", line) for line in (recorded, now))
    numbers = zip(map(float, old[1::2]), map(float, new[1::2]), strict=False)
    return old[::2] == new[::2] and all(abs(a - b) < 2.5e-4 for a, b in numbers)


def is_near(recorded: Any, now: Any) -> bool:
    """Figures that are not recorded may come: of a new metric, or a new remedy."""
    known = not {None, ABSENT} & {recorded, now}
    return recorded in (ABSENT, now) or (known and abs(recorded - now) <= 1e-9)


def is_no_more(recorded: Any, now: Any) -> bool:
    """At most 2 % above; a new way to count, as another version of Python, may add a little."""
    return not {None, ABSENT} & {recorded, now} and now <= 1.02 * recorded


GATES: dict[str, Recorded | Checked] = {
    "G1": Recorded("losses of 60 updates", gates.measure_losses, is_equal),
    "G2": Checked("properties of all encodings", gates.check_properties),
    "G3": Recorded(
        "translations and scores", gates.measure_translations, is_equal_but_for_rounding
    ),
    "G4": Checked("killed and resumed", gates.check_resumption),
    "G5": Checked("wrong overrides", gates.check_refusals),
    "G6": Checked("exports and imports", gates.check_exchange),
    "G7": Checked("two ranks", gates.check_ranks),
    "G8": Recorded("figures of evaluations", gates.measure_figures, is_near),
    "G9": Recorded("costs of an update and of a step", gates.measure_costs, is_no_more),
}


def compare(names: list[str]) -> bool:
    """Compare this checkout with the records; whether all is as it must be."""
    equal = [_report(name, GATES[name]) for name in names]  # all of them, whatever one says
    return all(equal)


def _report(name: str, gate: Recorded | Checked) -> bool:
    started = time.monotonic()
    if isinstance(gate, Recorded):
        record = _read(name)
        if processor() not in record["here"]:
            print(f"{name}: no values of {processor()}; recording those of {record['commit']}")
            record = _record(name, gate, record["commit"])
    with TemporaryDirectory() as folder:
        try:
            if isinstance(gate, Checked):
                problems = gate.check(Checkout(ROOT), Path(folder))
            else:
                values = gate.measure(Checkout(ROOT), Path(folder))
                problems = _differences(gate, record, values)
        except AssertionError as error:
            problems = [str(error)]
    seconds = time.monotonic() - started
    print(f"{name} {gate.about}: {'DIFFERS' if problems else 'ok'}, {seconds:.0f} s", flush=True)
    for problem in problems[:SHOWN]:
        print(f"   {problem}")
    if len(problems) > SHOWN:
        print(f"   and {len(problems) - SHOWN} more")
    return not problems


def _differences(gate: Recorded, record: dict[str, Any], values: gates.Values) -> list[str]:
    """What differs from a record, in words; nothing that is recorded may be missing."""
    problems = []
    for recorded, now in (
        (record["everywhere"], values.everywhere),
        (record["here"][processor()], values.here),
    ):
        old, new = dict(_leaves(recorded)), dict(_leaves(now))
        for key in sorted(old.keys() | new.keys()):
            was, becomes = (side.get(key, ABSENT) for side in (old, new))
            if not gate.same(was, becomes):
                problems.append(f"{key}: was {was!r}, is {becomes!r}")
    return problems


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and lines of nested values, by where they are."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value, start=1)
        for key, inner in items:
            yield from _leaves(inner, f"{where}, {key}" if where else str(key))
    else:
        yield where, value


def _read(name: str) -> dict[str, Any]:
    file = PINNED / f"{name}.json"
    record: dict[str, Any] = {"commit": "", "everywhere": {}, "here": {}}
    return json.loads(file.read_bytes()) if file.exists() else record


def _record(name: str, gate: Recorded, commit: str) -> dict[str, Any]:
    """Record what a commit computes; values of other processors stay while the commit does."""
    with TemporaryDirectory() as folder, worktree(commit, Path(folder)) as checkout:
        work = Path(folder) / "work"
        work.mkdir()
        values = gate.measure(checkout, work)
    old = _read(name)
    here = old["here"] if old["commit"] == commit else {}
    record = {
        "commit": commit,
        "everywhere": values.everywhere,
        "here": {**here, processor(): values.here},
    }
    text = json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True)
    (PINNED / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    # as it is read again
    return json.loads(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("gates", nargs="*", metavar="GATE", help=", ".join(GATES))
    parser.add_argument("--at", default="ce9b2018", metavar="COMMIT", help="default: %(default)s")
    options = parser.parse_args()
    if unknown := [name for name in options.gates if name not in GATES]:
        parser.error(f"{unknown[0]}: no gate; there are {', '.join(GATES)}")
    names = options.gates or list(GATES)
    if options.what == "compare":
        return 0 if compare(names) else 1
    for name in names:
        gate = GATES[name]
        if isinstance(gate, Recorded):
            _record(name, gate, options.at)
            print(f"{name}: recorded at {options.at}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
