"""The parts of --gpu share its time, on a clock that only the test moves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.bench import correctness, decoding, gpu, rounds, session
from scripts.bench.__main__ import GPU_PARTS, understood
from scripts.bench.candidates import Answer, Candidate
from scripts.bench.session import Session
from scripts.bench.table import LEFT_OUT, BenchPart

ALL = 60 * gpu.MINUTES


class Clock:
    """Says how late it is, and is moved by what takes time."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (session, rounds):
        monkeypatch.setattr(module, "monotonic", made)
    return made


@pytest.fixture
def bench(tmp_path: Path) -> Session:
    words = ["--quick", "--steady", "--rounds", "3", "--threads", "1", "--peers", "none"]
    options = understood([*words, "--precision", "float32", "--model", "tiny"])
    return Session.of(options, tmp_path, "cpu")


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Callable[..., list[tuple[str, float]]]:
    """Pretend that a case of each part takes so many seconds; gives the time that each part had."""

    def pretend(**seconds: float) -> list[tuple[str, float]]:
        had = []

        def take(name: str) -> str:
            clock.now += seconds.get(name, 0)
            return name

        def whole(name: str, own: Session) -> BenchPart:
            had.append((name, own.ends - clock.now))
            return BenchPart(take(name), name, (), [], [], {})

        def measure(own: Session, planned: gpu.GpuBenchmark) -> tuple[list[Any], dict[str, Any]]:
            name = "lengths" if planned.title.startswith("length") else "sizes"
            had.append((name, own.ends - clock.now))
            return [[take(name), *("" for _ in gpu.COLUMNS), ""]], {"title": planned.title}

        monkeypatch.setitem(gpu.PARTS, "correctness", lambda own: [whole("correctness", own)])
        monkeypatch.setattr(decoding, "part", lambda own, *_: whole("decoding", own))
        monkeypatch.setattr(gpu, "_measure", measure)
        return had

    return pretend


def test_a_part_that_takes_too_long_starves_no_other(
    bench: Session, takes: Callable[..., list[tuple[str, float]]]
) -> None:
    had = takes(correctness=ALL / 4, sizes=ALL)  # the first of two sizes takes all that there is
    parts = {part.name: part for part in gpu.parts(bench, GPU_PARTS)}
    assert list(parts) == ["correctness", "sizes", "decoding", "lengths"]
    assert had[:2] == [("correctness", ALL / 4), ("sizes", ALL / 4)]
    assert f"training, tiny, 400 tokens: {LEFT_OUT}" in parts["sizes"].text()
    assert parts["sizes"].to_json()["left_out"] == ["training, tiny, 400 tokens"]
    for name in ("decoding", "lengths"):
        assert f"{name}: {LEFT_OUT}" in parts[name].text()
        assert parts[name].to_json()["left_out"] == [name]


def test_time_that_a_part_does_not_need_is_for_those_after_it(
    bench: Session, takes: Callable[..., list[tuple[str, float]]]
) -> None:
    had = takes(correctness=ALL / 10, sizes=ALL / 10, decoding=ALL / 2)
    parts = {part.name: part for part in gpu.parts(bench, GPU_PARTS)}
    assert [(name, round(seconds / ALL, 2)) for name, seconds in had] == [
        ("correctness", 0.25),
        ("sizes", 0.3),
        ("sizes", 0.2),  # its second benchmark
        ("decoding", 0.35),
        ("lengths", 0.2),
        ("lengths", 0.2),
    ]
    assert parts["lengths"].to_json()["left_out"] == []


@pytest.mark.parametrize("name", GPU_PARTS)
def test_a_part_by_itself_has_all_the_time(
    name: str, bench: Session, takes: Callable[..., list[tuple[str, float]]]
) -> None:
    had = takes()
    assert [part.name for part in gpu.parts(bench, [name])] == [name]
    assert {seconds for _, seconds in had} == {ALL}


def test_checks_for_which_there_is_no_time_are_named(
    bench: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first check needs a third of all time for a case, the others none."""

    def slow(device: torch.device) -> Callable[[Any], float]:
        def share(chosen: Any) -> float:
            clock.now += ALL / 3
            return 0.5

        return share

    calls: list[Any] = []
    monkeypatch.setattr(correctness, "set_up", lambda *args, **more: calls.append((*args, more)))
    monkeypatch.setattr(correctness, "_cached", slow)
    monkeypatch.setattr(correctness, "_beside_cpu", lambda device: lambda chosen: 0.5)
    monkeypatch.setattr(correctness, "resumed", lambda own: lambda chosen: 0.5)
    own = bench._replace(encodings=["absolute", "relative"]).within(ALL)
    (part,) = correctness.parts(own)
    assert calls == [(torch.device("cpu"), {"threads": 1})]  # exact float32, as in training
    cached, gradients, *_ = (check for check in part.to_json().values() if isinstance(check, dict))
    assert (list(cached["shares"]), cached["left_out"]) == (["absolute"], ["relative"])
    assert (list(gradients["shares"]), gradients["left_out"]) == (["absolute", "relative"], [])
    assert f"decoding with a cache, beside a full pass: {LEFT_OUT}: relative" in part.text()


class Slow(Candidate):
    """A round of it takes ten seconds."""

    def __init__(self, clock: Clock) -> None:
        super().__init__("slow")
        self.clock = clock

    def start(self) -> Answer:
        return {}

    def round(self) -> Answer:
        self.clock.now += 10
        return {"units": 1, "seconds": 10}


def test_no_round_begins_after_the_end(clock: Clock) -> None:
    ((first, second),) = rounds.benchmark(5, [Slow(clock), Slow(clock)], warmup=1, ends=45)
    assert (len(first.rounds), len(second.rounds)) == (2, 2), "all have the same rounds"
    assert first.failed == second.failed == "3 of 6 rounds left out: no time"


def test_what_a_session_starts_is_stopped_at_its_end(bench: Session) -> None:
    late = bench.within(0)
    (workers,) = rounds.benchmark(1, [late.worker("a", "matmul_worker", precision="float32")])
    assert workers[0].failed == "killed: no time left"


def test_parts_are_those_of_the_command_line() -> None:
    assert tuple(gpu.PARTS) == GPU_PARTS
