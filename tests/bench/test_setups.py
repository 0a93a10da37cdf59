"""Every peer is measured at its best: all its set-ups take turns first."""

import sys
from pathlib import Path

from scripts.bench.candidates import Candidate, Worker
from scripts.bench.setups import Setup, find_fastest

FAKE = Path(__file__).with_name("fake.py")


def test_the_fastest_set_up_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "log"
    seconds = {16: "3", 64: "1", 256: "2"}

    def make(options: Setup) -> Candidate:
        count = int(options["sentences"])
        argv = [sys.executable, str(FAKE), f"{count},", str(log), seconds[count]]
        return Worker(str(count), argv, 1)

    chosen, line = find_fastest(make, [{"sentences": n} for n in seconds])
    assert chosen == {"sentences": 64} and line == "sentences 64 (the fastest of 3)"
    assert log.read_text() == "16,64,256," * 3, "they take turns, after a warm-up"


def test_set_ups_that_fail_are_passed_over(tmp_path: Path) -> None:
    def make(options: Setup) -> Candidate:
        how = "dead" if options["sentences"] == 16 else "1"
        return Worker("a", [sys.executable, str(FAKE), "a", str(tmp_path / "log"), how], 1)

    some: list[Setup] = [{"sentences": 16}, {"sentences": 64}]
    assert find_fastest(make, some)[0] == some[1]
    assert find_fastest(lambda _: Candidate("a", "not installed"), some)[0] == some[0]
