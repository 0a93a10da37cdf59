"""Processes that call functions: results, errors, and an end in every case."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.decode import workers
from nmt.decode.workers import WorkerPool, may_fork
from nmt.errors import Exit, UserError

pytestmark = pytest.mark.skipif(not workers.can_fork(), reason="forks are for Linux")


def compute(number: int) -> tuple[int, int, int]:
    if number == 7:
        raise UserError("seven: too many", Exit.NO_MEMORY)
    if number == 8:
        raise ZeroDivisionError
    if number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 10:
        os._exit(3)
    if number == 11:
        torch.empty(2**50)
    return number * number, os.getpid(), torch.get_num_threads()


def note(path: str, what: str) -> None:
    """Write when a call began and ended."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"+{what}\n")
        file.flush()
        time.sleep(0.02)
        file.write(f"-{what}\n")


FUNCTIONS: dict[str, Callable[..., Any]] = {"compute": compute, "note": note}


@pytest.fixture(autouse=True)
def nobody_is_left() -> Iterator[None]:
    yield
    assert not multiprocessing.active_children()


def test_results_come_from_other_processes_with_one_thread_each() -> None:
    torch.set_num_threads(2)
    try:
        with WorkerPool(2, FUNCTIONS) as some:
            asked = [some.begin("compute", number) for number in range(7)]
            made = [result() for result in reversed(asked)][::-1]
            assert asked[3]() == made[3]  # once more
    finally:
        torch.set_num_threads(1)
    assert [square for square, _, _ in made] == [n * n for n in range(7)]
    assert os.getpid() not in {pid for _, pid, _ in made}
    assert {threads for *_, threads in made} == {1}


@pytest.mark.parametrize(
    ("number", "kind", "code", "told"),
    [
        (7, UserError, Exit.NO_MEMORY, "seven: too many"),
        (8, RuntimeError, 1, "line .*, in compute(.|\n)*ZeroDivisionError"),
        (9, UserError, Exit.NO_MEMORY, "^worker 1 of 1: killed, as the system does for want of"),
        (10, UserError, Exit.IO, r"^worker 1 of 1: ended without a word \(exit 3\); --workers 1"),
        (11, MemoryError, 1, "DefaultCPUAllocator"),
    ],
)
def test_an_error_is_raised_where_its_result_is_asked_for(
    number: int, kind: type[Exception], code: int, told: str
) -> None:
    with WorkerPool(1, FUNCTIONS) as some:
        before, wrong, after = (some.begin("compute", n) for n in (2, number, 3))
        assert before()[0] == 4
        with pytest.raises(kind, match=told) as error:
            wrong()
        assert getattr(error.value, "code", 1) == code
        if number in (9, 10):  # nobody is left to do it
            with pytest.raises(UserError, match=told):
                after()
        else:
            assert after()[0] == 9


def test_others_go_on_where_one_is_killed() -> None:
    with WorkerPool(2, FUNCTIONS) as some:
        wrong, *rest = [some.begin("compute", n) for n in (9, 1, 2, 3, 4, 5)]
        assert [result()[0] for result in rest] == [1, 4, 9, 16, 25]
        with pytest.raises(UserError, match="of 2: killed"):
            wrong()
        assert some.begin("compute", 6)()[0] == 36


def test_large_calls_never_meet_and_urgent_ones_come_first(tmp_path: Path) -> None:
    path = str(tmp_path / "notes")
    with WorkerPool(2, FUNCTIONS) as some:
        every = [some.begin("note", path, f"large{n}", large=True) for n in range(3)]
        every += [some.begin("note", path, f"small{n}") for n in range(2)]
        every.append(some.begin("note", path, "urgent", urgent=True))
        assert some.waiting == 3  # large0 and small0 were begun; urgent ones are not counted
        for result in every:
            result()
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    large = [line for line in lines if "large" in line]
    assert large == [f"{sign}large{n}" for n in range(3) for sign in "+-"]
    assert lines.index("+urgent") < lines.index("+small1")


def test_attending_gives_out_tasks_without_waiting_for_a_result(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with WorkerPool(1, FUNCTIONS) as some:
        for number in range(3):
            some.begin("note", str(path), str(number))
        until = time.monotonic() + 60
        while not path.exists() or "+2" not in path.read_text(encoding="utf-8"):
            assert time.monotonic() < until
            some.attend()


def test_all_end_with_the_process_that_forked_them(tmp_path: Path) -> None:
    """Killed, it cannot tell; and each has the parent's ends of the pipes of those before it."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            with WorkerPool(3, {"sleep": time.sleep}) as some:
                results = [some.begin("sleep", 600) for _ in range(2)]
                children = multiprocessing.active_children()
                os.write(writing, " ".join(str(process.pid) for process in children).encode())
                results[0]()
        finally:
            os._exit(1)
    found = list(map(int, os.read(reading, 100).split()))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until = time.monotonic() + 60
    while any(_lives(pid) for pid in found):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert len(found) == 3
    os.close(reading)
    os.close(writing)


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_ctrl_c_is_for_the_parent_alone() -> None:
    with WorkerPool(1, FUNCTIONS) as some:
        pid = some.begin("compute", 1)()[1]
        os.kill(pid, signal.SIGINT)
        assert some.begin("compute", 2)()[:2] == (4, pid)


def test_a_system_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, iter(range(9))

    def full() -> int:
        if next(forks):
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", full)
    with pytest.raises(UserError, match=r"^--workers 3: the system begins no further") as error:
        WorkerPool(3, FUNCTIONS).__enter__()
    assert error.value.code == Exit.NO_MEMORY


def test_threads_and_daemons_forbid_a_fork_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert may_fork()
    current: Any = multiprocessing.current_process()
    monkeypatch.setitem(current._config, "daemon", True)
    assert not may_fork()
    monkeypatch.undo()
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert not may_fork()
    done.set()
    thread.join()
