"""Processes side by side: none is lost, none is left behind."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt import sweep
from nmt.config.compose import experiment_of
from nmt.errors import UserError
from nmt.sweep import PlannedRun


class Fake:
    """Ends with `code` after being polled `polls` times; None: never by itself."""

    alive: int = 0
    most: int = 0

    def __init__(self, code: int | None, polls: int) -> None:
        self.code, self.polls, self.stopped = code, polls, False
        Fake.alive += 1
        Fake.most = max(Fake.most, Fake.alive)

    def poll(self) -> int | None:
        self.polls -= 1
        if self.polls > 0 or self.code is None:
            return None
        Fake.alive -= 1
        return self.code

    def terminate(self) -> None:
        self.stopped = True

    def wait(self) -> int:
        assert self.stopped
        return -15


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "PAUSE", 0.001)
    Fake.alive = Fake.most = 0


def planned(name: str, *overrides: str, folder: Path = Path()) -> PlannedRun:
    experiment: Any = SimpleNamespace(overrides=overrides, run=folder / name)
    return PlannedRun(name, experiment)


def commands(names: str) -> list[PlannedRun]:
    return list(map(planned, names))


def test_a_failure_stops_no_other_and_at_once_is_the_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes = {"a": 0, "b": 70, "c": -9, "d": 0, "e": 0}
    polls = iter([2, 5, 1, 3, 2])
    ended = sweep.run_processes(
        commands("abcde"), 2, lambda run, gpu: Fake(codes[run.name], next(polls)), every=0
    )
    assert ended == codes
    assert Fake.most == 2
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert "0 of 5 ended" in lines[0] and "a: starting   b: starting" in lines[0]
    assert "c: starting" not in lines[0]
    assert lines[-1].endswith("5 of 5 ended")


def test_a_signal_stops_all_and_a_second_one_leaves_no_process_behind() -> None:
    waited: list[Fake] = []

    class Slow(Fake):
        def wait(self) -> int:
            signal.raise_signal(signal.SIGTERM)
            waited.append(self)
            return super().wait()

    processes: list[Fake] = [Slow(None, 0), Slow(None, 0)]
    former = signal.getsignal(signal.SIGUSR1)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    ready = iter(processes)
    with pytest.raises(UserError, match="SIGUSR1") as caught:
        sweep.run_processes(commands("abc"), 2, lambda run, gpu: next(ready))
    assert caught.value.code == 138 and waited == processes  # c never began
    assert "resume with the same command" in str(caught.value)
    assert signal.getsignal(signal.SIGUSR1) is former


def test_a_real_process_goes_on_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"before\n")
    one = planned("a", "encoding=nonsense", folder=tmp_path)
    assert sweep.run_processes([one], 1) == {"a": 2}
    assert log.read_bytes().startswith(b"before\n")
    assert "no such option" in sweep.last_line(log)


def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-x")
    assert sweep.gpus() == ["4", "GPU-x"]
    seen: list[tuple[str, str | None]] = []

    def start(run: PlannedRun, gpu: str | None) -> Fake:
        seen.append((run.name, gpu))
        return Fake(0, {"a": 3}.get(run.name, 1))

    work = [*commands("abc"), planned("d", "trainer.device=cuda:1")]
    sweep.run_processes(work, 2, start)
    assert seen == [("a", "4"), ("b", "GPU-x"), ("c", "GPU-x"), ("d", None)]
    settings = experiment_of(["run=R1", "scale=wmt19"]).settings
    assert sweep.free_slots(settings) == 2
    settings.trainer.device = "cuda:1"
    assert sweep.free_slots(settings) == 1
    settings.trainer.device = "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    slots = sweep.free_slots(settings)  # a quota may allow fewer
    assert 1 <= slots <= 6
    settings.trainer.threads = 4
    assert sweep.free_slots(settings) == max(1, slots // 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    sweep.run_processes(commands("e"), 1, start)
    assert seen[-1] == ("e", None)  # the one there is: nothing to choose
