"""Where there are several GPUs, commands that run at once use different ones."""

from pathlib import Path

import pytest

from nmt.experiments import processes, run
from nmt.experiments.processes import LoggedCommand
from nmt.overrides.compose import experiment_of


def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-x")
    assert processes.gpus() == ["4", "GPU-x"]
    seen: list[tuple[str, str | None]] = []

    class Ended:
        def __init__(self, polls: int) -> None:
            self.polls = polls

        def poll(self) -> int | None:
            self.polls -= 1
            return None if self.polls else 0

        def terminate(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start(command: LoggedCommand) -> Ended:
        seen.append((command.name, command.gpu))
        return Ended({"a": 3, "b": 1}.get(command.name, 1))

    monkeypatch.setattr(processes, "PAUSE", 0.001)
    work = [LoggedCommand(name, [], tmp_path / "log") for name in "abc"]
    work.append(LoggedCommand("d", ["--device", "cuda:1"], tmp_path / "log"))
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
    processes.run_all([LoggedCommand("e", [], tmp_path / "log")], 1, lambda name: "", start=start)
    assert seen[-1] == ("e", None)  # the one there is: nothing to choose
