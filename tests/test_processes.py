"""Processes side by side: none is lost, none is left behind."""

import os
import re
import signal
import sys
import threading
from pathlib import Path

import pytest

from nmt import processes
from nmt import sweep as run
from nmt.config.compose import experiment_of
from nmt.errors import UserError
from nmt.processes import LoggedCommand


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
    monkeypatch.setattr(processes, "PAUSE", 0.001)
    Fake.alive = Fake.most = 0


def commands(names: str) -> list[LoggedCommand]:
    return [LoggedCommand(name, [], Path(f"{name}.log")) for name in names]


def test_a_failure_stops_no_other_and_at_once_is_the_most(
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes = {"a": 0, "b": 70, "c": -9, "d": 0, "e": 0}
    made = iter([2, 5, 1, 3, 2])
    found = processes.run_all(
        commands("abcde"),
        2,
        lambda name: f"is {name}",
        start=lambda one, gpu: Fake(codes[one.name], next(made)),
        every=0,
    )
    assert found == codes
    assert Fake.most == 2
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    assert "0 of 5 ended" in lines[0] and "a: is a   b: is b" in lines[0]
    assert "c: is c" not in lines[0]
    assert any(re.search(r" of 5 ended, about \d\d:\d\d left ", line) for line in lines)
    assert lines[-1].endswith("5 of 5 ended")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_all_and_says_so(number: signal.Signals) -> None:
    made: list[Fake] = []

    def start(one: LoggedCommand, gpu: str | None) -> Fake:
        made.append(Fake(None, 0))
        return made[-1]

    former = signal.getsignal(number)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), number))
    timer.start()
    with pytest.raises(UserError, match="resume with the same command") as caught:
        processes.run_all(commands("abc"), 2, lambda name: "", start=start)
    assert caught.value.code == 128 + number and number.name in str(caught.value)
    assert [fake.stopped for fake in made] == [True, True]  # c never began
    assert signal.getsignal(number) is former


def test_a_second_signal_leaves_no_process_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Fake(None, 0), Fake(None, 0)]
    waited: list[Fake] = []

    def wait(self: Fake) -> int:
        signal.raise_signal(signal.SIGTERM)
        waited.append(self)
        return -15

    monkeypatch.setattr(Fake, "wait", wait)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    ready = iter(made)
    with pytest.raises(UserError, match="SIGUSR1") as caught:
        processes.run_all(commands("ab"), 2, lambda name: "", start=lambda one, gpu: next(ready))
    assert caught.value.code == 138 and waited == made


def test_a_real_process_goes_on_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"before\n")
    one = LoggedCommand("a", ["encoding=nonsense"], log)
    assert processes.run_all([one], 1, lambda name: "") == {"a": 2}
    assert log.read_bytes().startswith(b"before\n")
    assert "no such option" in processes.last_line(log)


def test_exit_codes_and_logs_in_words(tmp_path: Path) -> None:
    assert processes.exit_reason(71) == "exit 71"
    assert processes.exit_reason(-9) == "killed by SIGKILL"
    assert processes.exit_reason(-255) == "killed by signal 255"
    assert processes.last_line(tmp_path / "none") == "no output"
    (tmp_path / "log").write_bytes(b"one\n  two \xff\n \n\n")
    assert processes.last_line(tmp_path / "log") == "two \ufffd"


def test_a_command_is_a_training_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, object] = {}

    def popen(arguments: list[str], **more: object) -> Fake:
        seen.update(more, arguments=arguments)
        return Fake(0, 1)

    monkeypatch.setattr("nmt.processes.subprocess.Popen", popen)
    processes.start(LoggedCommand("a", ["x=1"], tmp_path / "log"))
    assert seen["arguments"] == [sys.executable, "-m", "nmt.cli.train", "x=1"]
    assert isinstance(seen["env"], dict) and seen["env"]["OMP_NUM_THREADS"] == "1"


def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-x")
    assert processes.gpus() == ["4", "GPU-x"]
    seen: list[tuple[str, str | None]] = []

    def start(command: LoggedCommand, gpu: str | None) -> Fake:
        seen.append((command.name, gpu))
        return Fake(0, {"a": 3}.get(command.name, 1))

    work = [*commands("abc"), LoggedCommand("d", ["--device", "cuda:1"], tmp_path / "log")]
    processes.run_all(work, 2, lambda name: "", start=start)
    assert seen == [("a", "4"), ("b", "GPU-x"), ("c", "GPU-x"), ("d", None)]
    settings = experiment_of(["run=R1", "scale=wmt19"]).settings
    assert run.free_slots(settings) == 2
    settings.trainer.device = "cuda:1"
    assert run.free_slots(settings) == 1
    settings.trainer.device = "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(run, "cores", lambda: 6)
    assert run.free_slots(settings) == 6
    settings.trainer.threads = 4
    assert run.free_slots(settings) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    processes.run_all(commands("e"), 1, lambda name: "", start=start)
    assert seen[-1] == ("e", None)  # the one there is: nothing to choose
