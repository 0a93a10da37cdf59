"""Many processes give what one gives, in order, a bounded way ahead; and they leave."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.data.parallel import AHEAD, Pool, in_order
from nmt.errors import Exit, UserError
from tests.data.meeting import PATIENCE, http_error, meet, who
from tests.pages import ROOT

HOST = """
import sys, time
from nmt.data.parallel import Pool
from tests.data.meeting import meet

with Pool(2) as pool:
    print(*set(pool.in_order(meet, sys.argv[1:] * 4)), flush=True)
    time.sleep(600)
"""
PLAIN = """
from pathlib import Path
from nmt.data.prepare import prepare
from tests.data.test_prepare import BPE, corpus

print("once", flush=True)
print(len(prepare(corpus(Path(), workers=2), BPE).train))
"""


def ended(pid: int) -> bool:
    """Wait until a process is gone; a zombie that nobody asks about is gone, too."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_tasks_are_taken_as_needed(workers: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(20):
            taken += 1
            yield -number

    for seen, result in enumerate(in_order(abs, tasks(), workers)):
        assert result == seen
        assert taken <= seen + AHEAD * workers


def test_first_error_in_order_is_raised() -> None:
    with pytest.raises(ValueError, match="'b'"):
        list(in_order(int, ["1", "b", "c"], 2))


def test_killed_process_is_told() -> None:
    with pytest.raises(UserError, match=r"data\.workers: .*set data\.workers below 2") as caught:
        list(in_order(os._exit, [9, 9], 2))
    assert caught.value.code == Exit.NO_MEMORY


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_one_pool_serves_two_passes_in_order_and_its_processes_leave(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    with Pool(2) as pool:
        first = set(pool.in_order(meet, [str(tmp_path / "first")] * 8))
        assert list(pool.in_order(abs, range(-20, 0))) == list(range(20, 0, -1))
        second = set(pool.in_order(meet, [str(tmp_path / "second")] * 8))
        assert len(first) == 2
        assert second == first
        assert os.getpid() not in first
    assert all(ended(pid) for pid in first)


def test_a_pool_of_one_is_this_process() -> None:
    with Pool(1) as pool:
        assert set(pool.in_order(who, range(2))) == {os.getpid()}


def test_an_error_in_either_pass_is_raised_and_later_tasks_are_not_begun() -> None:
    with Pool(2) as pool:
        with pytest.raises(ValueError, match="'b'"):
            list(pool.in_order(int, ["1", "b", "2", "3", "4"]))
        assert list(pool.in_order(int, ["5", "6"])) == [5, 6]
        with pytest.raises(ValueError, match="'c'"):
            list(pool.in_order(int, ["1", "2", "3", "c"]))


def test_a_process_killed_in_the_second_pass_is_told() -> None:
    with Pool(2) as pool:
        victim = next(pool.in_order(who, range(4)))
        with pytest.raises(UserError, match=r"set data\.workers below 2"):
            for _ in pool.in_order(who, range(100)):
                os.kill(victim, signal.SIGKILL)


@pytest.mark.parametrize("how", ["file", pytest.param("stdin", marks=pytest.mark.slow), "command"])
def test_a_script_without_a_guard_runs_once(how: str, tmp_path: Path) -> None:
    """A process that ran the parent's script again would wait for the lock of the parent."""
    script = tmp_path / "plain.py"
    script.write_text(PLAIN)
    words = {"file": [str(script)], "stdin": ["-"], "command": ["-c", PLAIN]}[how]
    done = subprocess.run(
        [sys.executable, *words], input=PLAIN if how == "stdin" else None, capture_output=True,
        text=True, cwd=tmp_path, timeout=PATIENCE, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("once\n40\n", 0), done.stderr


def test_signals_of_the_group_are_left_to_the_parent() -> None:
    with Pool(2) as pool:
        for pid in set(pool.in_order(who, range(8))):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(pid, number)
        assert list(pool.in_order(abs, range(-9, 0))) == list(range(9, 0, -1))


def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="HTTPError"):
        list(in_order(http_error, [404, 404], 2))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_processes_leave_when_their_parent_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOST, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as host:
        assert host.stdout
        pids = [int(pid) for pid in host.stdout.readline().split()]
        host.kill()
    assert len(pids) == 2
    assert all(ended(pid) for pid in pids)
