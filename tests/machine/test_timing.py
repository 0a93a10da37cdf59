"""The faster of two calls is found, and nothing else is disturbed by the trial."""

import time
from typing import Any

import pytest
import torch

from nmt.errors import UserError
from nmt.machine import precision, products, timing
from nmt.machine.timing import is_faster


def busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_faster_of_two_calls_is_found_whatever_other_processes_do() -> None:
    def waiting() -> None:
        time.sleep(0.003)  # as if another process had the core

    def working() -> None:
        busy(0.001)

    assert is_faster(waiting, working)
    assert not is_faster(working, waiting)


def test_as_many_times_as_fast_as_asked() -> None:
    assert is_faster(lambda: busy(0.001), lambda: busy(0.0022), 1.5)
    assert not is_faster(lambda: busy(0.001), lambda: busy(0.0013), 1.5)


def test_a_slow_candidate_is_not_tried_for_long() -> None:
    began = time.thread_time()
    assert not is_faster(lambda: busy(0.1), lambda: busy(0.0001))
    assert time.thread_time() - began < 0.5


def test_the_trial_leaves_threads_and_random_numbers_as_they_were() -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        precision.bfloat16_is_faster.__wrapped__()
        products.onednn_is_faster.__wrapped__()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before)


def test_bfloat16_may_have_to_be_much_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "is_faster", lambda low, plain, times: times <= 1.7)
    assert precision.bfloat16_is_faster.__wrapped__()
    assert not precision.bfloat16_is_faster.__wrapped__(2.0)


def test_a_trial_is_made_once_for_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(timing, "_answers", {})

    def ask() -> Any:
        @timing.trial(lambda plain: plain and tuple(plain))
        def question(times: int = 1) -> tuple[int, int] | None:
            calls.append(times)
            return (times, 2) if times else None

        return question

    first = ask()
    assert [first(1), first(1), first(0)] == [(1, 2), (1, 2), None] and calls == [1, 0]
    for name, value in timing.handed_down().items():
        monkeypatch.setenv(name, value)
    started = ask()
    assert [started(1), started(0), started(3)] == [(1, 2), None, (3, 2)] and calls == [1, 0, 3]
    monkeypatch.setenv(timing.HANDED_DOWN, "[1")
    with pytest.raises(UserError, match="NMT_TRIALS: not what"):
        ask()()
