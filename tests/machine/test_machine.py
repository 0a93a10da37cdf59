"""The record of a machine: what is measured, what is stated, and that nothing else is disturbed."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.errors import UserError
from nmt.machine import machine
from nmt.machine.int8 import FORMATS, Integers
from nmt.machine.machine import VARIABLE, least_seconds, measured, parse, this_machine, use


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured yet, and the environment states nothing."""
    monkeypatch.setattr(machine, "_machine", None)
    monkeypatch.delenv(VARIABLE, raising=False)


def busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_faster_of_two_calls_is_found_whatever_other_processes_do() -> None:
    """Sleeping is as if another process had the core."""
    seconds = least_seconds({"waits": lambda: time.sleep(0.003), "works": lambda: busy(0.001)})
    assert seconds["waits"] < seconds["works"] < 0.002


def test_a_slow_call_is_not_timed_for_long() -> None:
    began = time.thread_time()
    seconds = least_seconds({"slow": lambda: busy(0.1), "fast": lambda: busy(0.0001)})
    assert seconds["fast"] < 0.01 < seconds["slow"] and time.thread_time() - began < 0.5


def test_measuring_leaves_threads_and_random_numbers_as_they_were() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measured()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("onednn", "library", "speed"),
    [(0.5, "onednn", 0.25), (0.9, "torch", 0.5), (None, "torch", 0.5)],
)
def test_onednn_must_be_clearly_faster(
    onednn: float | None, library: str, speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And bfloat16 is compared with the faster library."""
    taken = {"torch": 1.0, "bfloat16": 2.0, "int8": 1.0, "plain": 2.0}
    monkeypatch.setattr(machine, "has_onednn", lambda: onednn is not None)
    monkeypatch.setattr(machine, "is_exact", lambda integers: False)
    monkeypatch.setattr(
        machine,
        "least_seconds",
        lambda calls: {name: taken.get(name, onednn) for name in calls},
    )
    found = measured()
    assert (found["float32"], found["bfloat16"], found["int8"]) == (library, speed, "none")


@pytest.mark.parametrize(
    ("exact", "faster", "chosen"),
    [
        ((True, True, True), (True, True, True), "u8s8"),  # VNNI, AMX
        ((False, True, False), (True, True, True), "u8s7"),  # AVX2, AVX-512
        ((True, True, True), (False, False, True), "s8s8"),
        ((True, True, True), (False, False, False), "none"),
        ((False, False, False), (True, True, True), "none"),
    ],
)
def test_the_first_integers_that_are_exact_and_faster_are_chosen(
    exact: tuple[bool, ...],
    faster: tuple[bool, ...],
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_format = dict(zip(FORMATS.values(), exact, strict=True))
    answers = iter([fast for fast, right in zip(faster, exact, strict=True) if right])

    def timed(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
        if "int8" in calls:
            return {"int8": 1.0, "plain": 2.0 if next(answers) else 0.5}
        return dict.fromkeys(calls, 1.0)

    monkeypatch.setattr(machine, "is_exact", lambda integers: by_format[integers])
    monkeypatch.setattr(machine, "least_seconds", timed)
    assert measured()["int8"] == chosen


def test_threads_that_ask_at_once_measure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sets torch's threads to one while it measures, and then to as many as it saw."""
    calls = list[int]()

    def slow() -> dict[str, Any]:
        calls.append(1)
        time.sleep(0.05)
        return parse("float32=torch,bfloat16=1.5,int8=none")

    monkeypatch.setattr(machine, "measured", slow)
    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(lambda _: this_machine(), range(4)))) == 1
    assert len(calls) == 1


def test_choices_follow_the_record(pretend: Callable[..., None]) -> None:
    pretend(bfloat16=1.7, int8="u8s7")
    assert this_machine().trains_in_bfloat16 and not this_machine().searches_in_bfloat16
    assert this_machine().integers == Integers(zero=128, largest=63)
    pretend(bfloat16=1.0, int8="none")
    assert not this_machine().trains_in_bfloat16 and this_machine().integers is None
    pretend(bfloat16=2.5)
    assert this_machine().searches_in_bfloat16


def test_what_is_stated_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "float32=onednn,bfloat16=1.72,int8=u8s7"
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setattr(machine, "measured", dict)  # would lack all
    assert str(this_machine()) == text
    use("bfloat16=0.5")
    assert str(this_machine()) == text.replace("1.72", "0.5")


def test_a_part_may_be_stated_and_the_record_can_be_read_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "int8=none")
    known = measured()
    monkeypatch.setattr(machine, "measured", lambda: known)
    assert this_machine() is this_machine() and this_machine().int8 == "none"
    assert parse(str(this_machine())) == {**known, "int8": "none"}


@pytest.mark.parametrize("text", ["float32=mkl", "int8", "bfloat16=fast", "avx=yes"])
def test_what_cannot_be_read_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"int8=none,{text}")
    with pytest.raises(UserError, match=f"^NMT_MACHINE: {text}: expected float32=onednn or torch"):
        this_machine()


def test_the_name_of_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
    (tmp_path / "cpuinfo").write_text(f"{facts}\n{facts.replace('EPYC', 'other')}")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    assert machine.processor() == "AMD EPYC, family 25, model 17"
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "none")
    assert machine.processor()
