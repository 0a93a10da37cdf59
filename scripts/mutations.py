"""Do the tests find faults? Makes those of mutations.toml one at a time in a copy of the tree.

    python scripts/mutations.py [PART ...] [--tree DIR] [--jobs 2]

A PART is a folder or file under nmt/ ("decode", "beam.py"), or some of a fault's text; without any,
all faults are tried. Each fault is one text replaced by another, found anywhere under nmt/, so that
moving code does not lose it. Its tests are named by the stems of their files. A fault that no test
notices has survived; one whose text does not occur exactly once, or whose tests cannot be selected,
is a mistake in the list. Either makes the exit code 1. That the tests pass without faults is what
`make test` says.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

HERE = Path(__file__).parent
NEEDED = (
    *("nmt", "conf", "tests", "scripts", "docs", "data", "pyproject.toml", "README.md"),
    *("CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"),
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "peers", ".*")
LIMIT = 300  # seconds of a processor, after which a fault has made a test endless
SAID = "pytest.log"  # in a copy of the tree
KILLED, SURVIVED, WRONG = "killed", "SURVIVED", "NOT APPLICABLE"


class Mutation(NamedTuple):
    """A fault, and the tests that must notice it."""

    number: int  # from 1
    old: str
    new: str
    tests: str


class Trial(NamedTuple):
    """Tests that are running on a fault."""

    pid: int
    mutation: Mutation
    tree: Path
    path: Path  # of the file with the fault
    sound: str  # its text without
    began: float  # seconds of a clock


class Verdict(NamedTuple):
    """What became of a fault."""

    mutation: Mutation
    outcome: str
    why: str
    seconds: float = 0


def mutations() -> list[Mutation]:
    """Read the list."""
    listed = tomllib.loads((HERE / "mutations.toml").read_text(encoding="utf-8"))["mutation"]
    return [Mutation(number, **entry) for number, entry in enumerate(listed, start=1)]


def files_of(tree: Path) -> dict[Path, str]:
    """The text of each file where faults are made."""
    return {path: path.read_text(encoding="utf-8") for path in (tree / "nmt").rglob("*.py")}


def place_of(mutation: Mutation, files: dict[Path, str]) -> Path:
    """The file that a fault changes; raises ValueError unless its text occurs once in all."""
    found = [path for path, text in files.items() for _ in range(text.count(mutation.old))]
    if len(found) == 1:
        return found[0]
    places = ", ".join(map(str, found)) or "no file"
    raise ValueError(f"{mutation.old!r} occurs {len(found)} times: {places}")


def chosen_of(parts: list[str], tree: Path) -> list[Mutation]:
    """The faults in some files or folders, or with some text; all, if there are no parts.

    A fault that can be placed nowhere belongs to every choice.
    """
    files, chosen = files_of(tree), []
    for mutation in mutations():
        try:
            place = place_of(mutation, files).relative_to(tree).parts
        except ValueError:
            place = tuple(parts)
        if not parts or any(part in place or part in mutation.old for part in parts):
            chosen.append(mutation)
    return chosen


def arguments(tree: Path, tests: str) -> list[str]:
    """The arguments of pytest; raises ValueError where no file of these stems is there."""
    stems, option, expression = tests.partition(" -k ")
    found = sorted((tree / "tests").rglob("test_*.py"))
    files = [str(path.relative_to(tree)) for path in found if path.stem in stems.split()]
    if not files:
        raise ValueError(f"there is none of {stems} under tests")
    return [*files, "-k", expression.strip("'")] if option else files


def trial(tree: Path, mutation: Mutation, said: Path) -> Trial | Verdict:
    """Make a fault in a tree, and start its tests in a process of their own."""
    try:
        files = files_of(tree)
        path = place_of(mutation, files)
        given = arguments(tree, mutation.tests)
    except ValueError as error:
        return Verdict(mutation, WRONG, str(error))
    path.write_text(files[path].replace(mutation.old, mutation.new), encoding="utf-8")
    sys.stdout.flush()
    if pid := os.fork():
        return Trial(pid, mutation, tree, path, files[path], time.monotonic())
    with said.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree)
    sys.path[0] = str(tree)
    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *given]))
    sys.stdout.flush()
    os._exit(code)


def judged(mutation: Mutation, status: int, output: str) -> Verdict:
    """What the end of the tests means."""
    if os.WIFSIGNALED(status):
        return Verdict(mutation, KILLED, f"ended by signal {os.WTERMSIG(status)}")
    code = os.waitstatus_to_exitcode(status)
    lines = output.strip().split("\n")
    if code == pytest.ExitCode.TESTS_FAILED:
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return Verdict(mutation, KILLED, failed[0][:110] if failed else lines[-1])
    if code == pytest.ExitCode.OK:
        return Verdict(mutation, SURVIVED, lines[-1])
    return Verdict(mutation, WRONG, f"pytest ends with {code}: {lines[-1]}")


def verdicts(tree: Path, chosen: list[Mutation], jobs: int) -> Iterator[Verdict]:
    """Try faults, as many at once as there are copies of the tree; as they come to an end."""
    with tempfile.TemporaryDirectory() as made:
        free = [copy_of(tree, Path(made) / str(number)) for number in range(jobs)]
        waiting, running = list(reversed(chosen)), dict[int, Trial]()
        while waiting or running:
            while waiting and free:
                mutation, copy = waiting.pop(), free.pop()
                begun = trial(copy, mutation, copy / SAID)
                if isinstance(begun, Trial):
                    running[begun.pid] = begun
                else:
                    free.append(copy)
                    yield begun
            if running:
                pid, status = os.wait()
                ended = running.pop(pid)
                ended.path.write_text(ended.sound, encoding="utf-8")
                free.append(ended.tree)
                output = (ended.tree / SAID).read_text(encoding="utf-8", errors="replace")
                seconds = time.monotonic() - ended.began
                yield judged(ended.mutation, status, output)._replace(seconds=seconds)


def copy_of(tree: Path, place: Path) -> Path:
    """Copy what tests read to a new directory."""
    place.mkdir()
    for name in NEEDED:
        if (tree / name).is_dir():
            shutil.copytree(tree / name, place / name, ignore=LEFT_OUT)
        elif (tree / name).exists():
            shutil.copy(tree / name, place / name)
    return place


def warm() -> None:
    """Import once what all tests need but the package: each of them would take seconds for it."""
    torch.set_num_threads(1)  # else the processes to come would lack its threads
    for name in ("hydra", "hypothesis", "sacrebleu", "sentencepiece", "subword_nmt.apply_bpe"):
        import_module(name)


def main() -> int:
    """Try all faults, or some; return 1 unless all are killed."""
    parser = argparse.ArgumentParser(description="Do the tests find the faults of mutations.toml?")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="folder, file or text (default: all)"
    )
    parser.add_argument("--tree", type=Path, default=HERE.parent, help="default: this one")
    parser.add_argument("--jobs", type=int, default=2, help="faults at once (default %(default)s)")
    options = parser.parse_args()
    tree, began = options.tree.resolve(), time.monotonic()
    chosen = chosen_of(options.parts, tree)
    counts: Counter[str] = Counter()
    warm()
    for verdict in verdicts(tree, chosen, options.jobs):
        counts[verdict.outcome] += 1
        first = verdict.mutation.old.strip().split("\n")[0][:60]
        sys.stdout.write(
            f"{verdict.mutation.number:3} {verdict.outcome:14} {verdict.seconds:4.0f} s  {first}\n"
            f"    {verdict.why}\n"
        )
        sys.stdout.flush()
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    minutes = (time.monotonic() - began) / 60
    sys.stdout.write(f"{len(chosen)} mutations in {minutes:.1f} minutes: {outcomes}\n")
    return 0 if chosen and counts[KILLED] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
