"""Where there are several GPUs, jobs that run at once use different ones."""

from pathlib import Path

import pytest

from nmt.experiments import processes as jobs
from nmt.experiments import tables
from nmt.experiments.processes import Job
from nmt.overrides.compose import experiment_of


def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-x")
    assert jobs.gpus() == ["4", "GPU-x"]
    seen: list[tuple[str, str | None]] = []

    class Ended:
        def __init__(self, looks: int) -> None:
            self.looks = looks

        def poll(self) -> int | None:
            self.looks -= 1
            return None if self.looks else 0

        def terminate(self) -> None: ...

        def wait(self) -> int:
            return 0

    def start(job: Job) -> Ended:
        seen.append((job.name, job.gpu))
        return Ended({"a": 3, "b": 1}.get(job.name, 1))

    monkeypatch.setattr(jobs, "PAUSE", 0.001)
    work = [Job(name, "train", [], tmp_path / "log") for name in "abc"]
    work.append(Job("d", "translate", ["--device", "cuda:1"], tmp_path / "log"))
    jobs.run_all(work, 2, lambda name: "", start=start)
    assert seen == [("a", "4"), ("b", "GPU-x"), ("c", "GPU-x"), ("d", None)]
    settings = experiment_of(["run=R1", "scale=wmt19"]).settings
    assert tables.places(settings) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(tables, "cores", lambda: 6)
    assert tables.places(settings) == 6
    settings.trainer.threads = 4
    assert tables.places(settings) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    jobs.run_all([Job("e", "train", [], tmp_path / "log")], 1, lambda name: "", start=start)
    assert seen[-1] == ("e", None)  # the one there is: nothing to choose
