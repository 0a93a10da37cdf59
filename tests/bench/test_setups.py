"""Every peer is measured at its best: all its set-ups take turns first."""

import sys
from pathlib import Path

import pytest

from scripts.bench.candidates import Candidate, Worker
from scripts.bench.setups import Setup, find_fastest, setups_of

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


@pytest.mark.parametrize("threads", [1, 2, 6])
def test_an_engine_shares_all_threads_among_its_workers(threads: int) -> None:
    options = setups_of("ctranslate2_", "decoding", threads, "cpu")
    assert all(int(o["workers"]) * int(o["threads"]) == threads for o in options)
    assert {o["workers"] for o in options} == {n for n in (1, 2, 3, 6) if threads % n == 0}


def test_kernels_of_attention_are_a_choice() -> None:
    for peer in ("xtransformers", "marian_hf"):
        options = setups_of(peer, "training", 2, "cpu")
        assert {o["attention"] for o in options} == {"sdpa", "eager"}
