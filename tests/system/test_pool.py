"""Executors: results in their order, errors, and workers that end in every case."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.errors import Exit, UserError, is_out_of_memory
from nmt.system.pool import WorkerPool, can_fork, in_order, may_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="forks are for Linux")


class Large:
    """Stands for a model: it cannot be sent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def square(self, number: int) -> int:
        return number * number


class UnpicklableError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def compute(number: int) -> tuple[int, int, int]:
    if number == 7:
        raise UserError("seven: too many", Exit.NO_MEMORY)
    if number == 8:
        raise ZeroDivisionError
    if number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 10:
        raise UnpicklableError("cannot", "be sent")
    if number == 11:
        torch.empty(2**50)
    return number * number, os.getpid(), torch.get_num_threads()


def pool(count: int, *inherited: Any) -> WorkerPool:
    return WorkerPool(count, f"--workers {count}", "give fewer", inherited)


@pytest.fixture(autouse=True)
def no_child_remains() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def test_results_come_from_other_processes_with_one_thread_each() -> None:
    torch.set_num_threads(2)
    try:
        with pool(2) as workers:
            results = [future.result() for future in [workers.submit(compute, n) for n in range(7)]]
    finally:
        torch.set_num_threads(1)
    assert [square for square, _, _ in results] == [n * n for n in range(7)]
    assert os.getpid() not in {pid for _, pid, _ in results}
    assert {threads for *_, threads in results} == {1}


def test_methods_of_objects_that_cannot_be_sent_are_inherited() -> None:
    large = Large()
    with pool(2, large.square) as workers:
        assert list(in_order(workers, large.square, range(9))) == [n * n for n in range(9)]
        assert workers.submit(abs, -3).result() == 3


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_is_raised_by_its_future_alone(count: int) -> None:
    with pool(count) as some:
        for number, kind in ((7, UserError), (8, ZeroDivisionError), (11, RuntimeError)):
            before, wrong, after = (some.submit(compute, n) for n in (2, number, 3))
            assert (before.result()[0], after.result()[0]) == (4, 9)
            with pytest.raises(kind) as error:
                wrong.result()
            assert number != 7 or getattr(error.value, "code", None) == Exit.NO_MEMORY
            assert number != 11 or is_out_of_memory(error.value)


def test_an_error_that_cannot_be_sent_is_put_into_words() -> None:
    with pool(2) as workers:
        wrong, after = workers.submit(compute, 10), workers.submit(compute, 3)
        with pytest.raises(RuntimeError, match="UnpicklableError: cannot"):
            wrong.result()
        assert after.result()[0] == 9


def test_a_killed_worker_is_an_error_of_the_user_for_its_calls_alone() -> None:
    told = "^--workers 2: a worker was killed, as the system does for want of memory; give fewer$"
    with pool(2) as workers:
        killed, *others = (workers.submit(compute, number) for number in (9, 1, 2, 3, 4, 5))
        with pytest.raises(UserError, match=told) as error:
            killed.result()
        assert error.value.code == Exit.NO_MEMORY
        lost = 0
        for number, call in enumerate(others, 1):
            try:
                assert call.result()[0] == number * number
            except UserError:
                lost += 1
        assert lost <= 1  # what was sent to the same worker
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        for _ in range(4):  # no call waits for workers that were all killed
            with pytest.raises(UserError, match="a worker was killed"):
                workers.submit(abs, -1).result()


def large(number: int, text: bytes) -> bytes:
    if number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    return text


def test_no_half_written_message_of_a_killed_worker_is_waited_for() -> None:
    """Messages are larger than a pipe holds, in both directions."""
    text = b"x" * 2**20
    with pytest.raises(UserError, match="a worker was killed"), pool(3) as workers:
        futures = [workers.submit(large, 9 if n == 7 else n, text) for n in range(9)]
        assert [future.result() for future in futures]
    with pool(3) as workers:  # workers are killed at work
        futures = [workers.submit(large, n, text) for n in range(8)]
        assert futures[1].result() == text


def test_all_end_with_the_process_that_forked_them() -> None:
    """Killed, it cannot tell; and each has the parent's ends of the pipes of those before it."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            with pool(3) as workers:
                future = workers.submit(time.sleep, 600)
                children = multiprocessing.active_children()
                os.write(writing, " ".join(str(process.pid) for process in children).encode())
                future.result()
        finally:
            os._exit(1)
    pids = list(map(int, os.read(reading, 100).split()))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until = time.monotonic() + 60
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(pids) == 3
    os.close(reading)
    os.close(writing)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_signals_of_the_group_are_for_the_parent_alone() -> None:
    with pool(2) as workers:
        pid = workers.submit(os.getpid).result()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)
        assert workers.submit(compute, 2).result()[:2] == (4, pid)


def test_a_system_that_is_full_is_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, iter(range(9))

    def full() -> int:
        if next(forks):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(UserError, match=r"^--workers 3: the system starts no further") as error:
        pool(3).__enter__()
    assert error.value.code == Exit.NO_MEMORY


def test_threads_and_daemons_forbid_a_fork_that_was_not_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert may_fork()
    current: Any = multiprocessing.current_process()
    monkeypatch.setitem(current._config, "daemon", True)
    assert not may_fork()
    with pool(2) as alone:  # and one that was is not made
        assert alone.submit(os.getpid).result() == os.getpid()
    monkeypatch.undo()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not may_fork()
    done.set()
    thread.join()


def test_an_interrupt_ends_the_workers_wherever_it_comes() -> None:
    """While results are waited for, received, or not: no lock is left locked, no call is made."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    me, began = threading.get_ident(), time.monotonic()
    try:
        for number in range(0, 20, 3):
            later = threading.Timer(number / 400, signal.pthread_kill, (me, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt), pool(2) as workers:
                later.start()
                calls = [workers.submit(compute, 3) for _ in range(2 * number)]
                assert all(call.result()[0] == 9 for call in calls)
                workers.submit(time.sleep, 600).result()
            later.join()
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert not multiprocessing.active_children()
        assert time.monotonic() - began < 50
    finally:
        signal.signal(signal.SIGINT, before)
