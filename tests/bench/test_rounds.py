import math
import sys
import time
from pathlib import Path

import pytest

from scripts.bench.candidates import Answer, Candidate, Worker
from scripts.bench.rounds import Measurement, benchmark, ratio, spread

FAKE = Path(__file__).with_name("fake.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def fake(name: str, log: Path, how: str, ends: float = math.inf) -> Worker:
    return Worker(name, [sys.executable, str(FAKE), name, str(log), how], 1, ends)


def test_candidates_take_turns(log: Path) -> None:
    candidates = [fake("a", log, "1"), fake("b", log, "2"), fake("c", log, "4")]
    entries, last = benchmark(2, candidates[:2], candidates[2:], warmup=1)
    assert log.read_text() == "abcabcabc"
    assert [entry.name for entry in entries] == ["a", "b"]
    entries += last
    assert [entry.facts for entry in entries] == [{"version": each} for each in "124"]
    assert [len(entry.rounds) for entry in entries] == [2, 2, 2]
    assert entries[1].seconds == [4.0, 6.0], "the warm-up round does not count"


def test_ratios_are_of_the_same_round() -> None:
    one, other = Measurement("one"), Measurement("other")
    for a, b in ((10, 5), (100, 10), (40, 10)):
        one.rounds.append({"units": a, "seconds": 1})
        other.rounds.append({"units": b, "seconds": 1})
    assert ratio(one, other) == 4  # of 2, 10 and 4; that of the medians is 40 / 10, of means 6
    other.rounds.pop()
    assert ratio(one, other) == 6, "only rounds that both have played"
    assert ratio(one, Measurement("none")) is None
    assert ratio(one, None) is None
    assert list(spread([3, 1, 2]).values()) == [2, 1, 3]


@pytest.mark.parametrize(
    ("how", "why", "rounds"),
    [
        ("dead", "ModuleNotFoundError: no module named nothing", 0),
        ("dies", "out of luck", 1),
        ("babbles", "said b'Downloading...' instead of JSON", 0),
        ("idle", 'answered {"units": 0, "seconds": 1}', 0),
    ],
)
def test_who_fails_is_in_the_table_with_the_reason(
    log: Path, how: str, why: str, rounds: int
) -> None:
    ((good, bad),) = benchmark(2, [fake("a", log, "1"), fake("b", log, how)], warmup=1)
    assert bad.failed == why
    assert len(bad.rounds) == rounds
    assert (good.failed, len(good.rounds)) == (None, 2)
    assert bad.to_json()["failed"] == why


def test_who_lingers_is_stopped(log: Path) -> None:
    worker = fake("a", log, "lingers", time.monotonic() + 2)
    ((entry,),) = benchmark(1, [worker])
    assert entry.failed == "killed: no time left"


class Slow(Candidate):
    """A round of it takes a while."""

    def start(self) -> Answer:
        return {}

    def round(self) -> Answer:
        time.sleep(0.3)
        return {"units": 1, "seconds": 0.3}


def test_no_round_begins_after_the_end() -> None:
    ends = time.monotonic() + 1
    ((first, second),) = benchmark(20, [Slow("a"), Slow("b")], warmup=0, ends=ends)
    played = len(first.rounds)
    assert 0 < played < 4 and played == len(second.rounds), "all have the same rounds"
    assert first.failed == second.failed == f"{20 - played} of 20 rounds left out: no time"
