import math
import sys
import time
from pathlib import Path

import pytest

from scripts.bench.rounds import Answer, Candidate, benchmark, ratio, spread
from scripts.bench.toolkits import Setup, find_fastest

FAKE = Path(__file__).with_name("fake.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def fake(name: str, log: Path, how: str, ends: float = math.inf) -> Candidate:
    return Candidate(name, [sys.executable, str(FAKE), name, str(log), how], 1, ends)


def test_candidates_take_turns(log: Path) -> None:
    candidates = [fake("a", log, "1"), fake("b", log, "2"), fake("c", log, "4")]
    benchmark(candidates, 2, warmup=1)
    assert log.read_text() == "abcabcabc"
    assert [each.facts for each in candidates] == [{"version": each} for each in "124"]
    assert [len(each.rounds) for each in candidates] == [2, 2, 2]
    assert candidates[1].rates == [100 / 4, 100 / 6], "the warm-up round does not count"


def test_ratios_are_of_the_same_round() -> None:
    one, other = Candidate("one"), Candidate("other")
    for a, b in ((10, 5), (100, 10), (40, 10)):
        one.rounds.append({"units": a, "seconds": 1})
        other.rounds.append({"units": b, "seconds": 1})
    assert ratio(one, other) == 4  # of 2, 10 and 4; that of the medians is 40 / 10, of means 6
    other.rounds.pop()
    assert ratio(one, other) == 6, "only rounds that both have played"
    assert ratio(one, Candidate("none")) is None
    assert ratio(one, None) is None
    assert list(spread([3, 1, 2]).values()) == [2, 1, 3]


def test_who_fails_is_in_the_table_with_the_reason(log: Path) -> None:
    failing = {
        "dead": ("ModuleNotFoundError: no module named nothing", 0),
        "dies": ("out of luck", 1),
        "babbles": ("said b'Downloading...' instead of JSON", 0),
        "idle": ('answered {"units": 0, "seconds": 1}', 0),
    }
    good, absent = fake("a", log, "1"), Candidate("x", failed="not installed")
    bad = [fake("b", log, how) for how in failing]
    benchmark([good, *bad, absent], 2, warmup=1)
    assert [(each.failed, len(each.rounds)) for each in bad] == list(failing.values())
    assert [each.to_json()["failed"] for each in bad] == [why for why, _ in failing.values()]
    assert (good.failed, len(good.rounds)) == (None, 2)
    assert (absent.failed, absent.rounds) == ("not installed", [])


def test_who_lingers_is_stopped(log: Path) -> None:
    worker = fake("a", log, "lingers", time.monotonic() + 0.6)
    benchmark([worker], 1)
    assert worker.failed == "killed: no time left"


class Slow(Candidate):
    """A round of it takes a while."""

    def launch(self) -> None:
        pass

    def wait_until_ready(self) -> Answer:
        return {}

    def play(self) -> Answer:
        time.sleep(0.05)
        return {"units": 1, "seconds": 0.05}


def test_no_round_begins_after_the_end() -> None:
    first, second = Slow("a"), Slow("b")
    benchmark([first, second], 20, warmup=0, ends=time.monotonic() + 0.2)
    played = len(first.rounds)
    assert 0 < played < 5 and played == len(second.rounds), "all have the same rounds"
    assert first.failed == second.failed == f"{20 - played} of 20 rounds left out: no time"


def test_a_peer_is_measured_with_its_fastest_settings(log: Path) -> None:
    seconds = {16: "dead", 64: "1", 256: "2"}

    def make(options: Setup) -> Candidate:
        count = int(options["sentences"])
        return fake(f"{count},", log, seconds[count])

    setups: list[Setup] = [{"sentences": n} for n in seconds]
    chosen, line = find_fastest(make, setups)
    assert chosen == {"sentences": 64} and line == "sentences 64 (the fastest of 3)"
    assert log.read_text() == "64,256," * 3, "they take turns, after a warm-up"
    assert find_fastest(lambda _: Candidate("a", failed="not installed"), setups)[0] == setups[0]
