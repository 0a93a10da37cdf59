"""A run that was stopped, killed, or short of disk ends in the very bytes of one that was not."""

import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.layers import Layer
from nmt.system import atomic
from tests.training import tiny
from tests.training.tiny import newest, same

EVERYTHING: dict[str, Any] = {  # that is drawn, averaged, counted or kept
    "encoding": {"absolute": {"at": {"shift": {"k": 5}}}},
    "trainer__ema": 0.9,
    "trainer__dev_metric": "bleu",
    "trainer__dev_lines": 5,
    "trainer__early_stopping": 9,
    "trainer__keep_best": 2,
    "trainer__freeze": ["encoder.layers.0"],
    "trainer__max_epochs": 2,
}


def test_stops_for_want_of_time_with_all_that_a_run_may_have(
    data: Prepared, tmp_path: Path
) -> None:
    """Without time a run makes one update."""
    tiny.train(tmp_path / "whole", data, **EVERYTHING)
    for step in range(1, 6):
        outcome = tiny.train(tmp_path / "run", data, trainer__max_hours=0.0, **EVERYTHING)
        assert (outcome.step, outcome.code) == (step, Exit.OUT_OF_TIME)
        assert "stopped by trainer.max_hours" in str(outcome)
    assert tiny.train(tmp_path / "run", data, **EVERYTHING).code == Exit.OK
    assert same(tmp_path / "run", tmp_path / "whole")


def test_train_lines_average_over_the_same_updates_after_a_kill(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines come every 3 steps and checkpoints every 2, so that a kill cuts a window in two."""

    def die(optimizer: object) -> None:
        raise SystemExit  # nothing is saved

    chosen = {"trainer__log_every": 3, "trainer__max_epochs": 2}
    tiny.train(tmp_path / "whole", data, **chosen)
    with monkeypatch.context() as patch:
        tiny.at_update(patch, 5, die)
        with pytest.raises(SystemExit):
            tiny.train(tmp_path / "run", data, **chosen)
    tiny.train(tmp_path / "run", data, **chosen)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert [line["step"] for line in tiny.lines(tmp_path / "run", "train")] == [3, 6]


def test_gradient_checkpointing_may_come_and_go(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that computes its layers twice for a while ends in the same bytes."""
    random = {"sine_spe": {"mode": "stochastic", "realizations": 4}, "absolute": {"at": "shift"}}
    chosen: dict[str, Any] = {"encoding": random, "trainer__max_epochs": 1}
    calls: list[int] = []

    def count(layer: Layer, *_: Any) -> None:
        calls.extend([1] * (not hasattr(layer, "cross")))  # of the encoder

    tiny.at_module(monkeypatch, Layer, count)
    tiny.train(tmp_path / "plain", data, **chosen)
    once = len(calls)
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 2)
        tiny.train(tmp_path / "run", data, **chosen, trainer__gradient_checkpointing=True)
    assert len(calls) - once > once / 2  # two of four updates, computed twice
    tiny.train(tmp_path / "run", data, **chosen)
    assert same(tmp_path / "run", tmp_path / "plain")


STALLING = {  # a rate so small that no perplexity changes
    "optim__lr": 1e-30, "optim__patience": 2, "trainer__max_epochs": 2,
}  # fmt: skip


def test_a_cut_of_the_rate_is_remembered(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the very stop; and an end between two checkpoints of the timetable does not count."""
    whole, stopped, longer = (tmp_path / name for name in ("whole", "stopped", "longer"))
    tiny.train(whole, data, **STALLING)
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 6)  # stalls at 4 and 6
        tiny.train(stopped, data, **STALLING)
    schedule = json.loads((newest(stopped) / "state.json").read_bytes())["schedule"]
    assert schedule["lr"] == 5e-31 and schedule["stalled"] == 0
    tiny.train(stopped, data, **STALLING)
    assert same(stopped, whole)
    for steps in (3, 7, None):
        tiny.train(longer, data, **STALLING, trainer__max_steps=steps)
    states = [json.loads((newest(run) / "state.json").read_bytes()) for run in (longer, whole)]
    for key in ("schedule", "stalls", "checkpoints"):
        assert states[0][key] == states[1][key]
    assert tiny.digest(newest(longer) / "optim.safetensors") == tiny.digest(
        newest(whole) / "optim.safetensors"
    )


def test_a_full_disk_costs_a_checkpoint_and_not_the_training(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    averaged = {"trainer__ema": 0.9}  # a failure midway must not leave the average in the model
    tiny.train(tmp_path / "whole", data, **averaged)
    with monkeypatch.context() as patch:
        tiny.full_disk(patch, range(3, 9))
        tiny.train(tmp_path / "run", data, **averaged)
    assert caplog.text.count("trying again at the next one") == 3
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_disk_without_room_for_a_checkpoint_that_must_be_ends_with_74(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first; that of an early end, of the end, and of a signal. One that fails at any."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        tiny.full_disk(patch, [4], number=errno.EIO)
        with pytest.raises(UserError, match=r"Input/output error.*resume") as error:
            tiny.train(run, data)
    assert error.value.code == Exit.IO and newest(run).name == "step-00000002"
    shutil.rmtree(run)
    early = {**STALLING, "trainer__early_stopping": 1}
    for path, full, changes in ((run, 1, {}), (tmp_path / "early", 3, early), (run, 5, {})):
        with monkeypatch.context() as patch:
            tiny.full_disk(patch, range(full, 13))
            with pytest.raises(UserError, match="No space left on device; make room") as error:
                tiny.train(path, data, **changes)
        assert error.value.code == Exit.IO
    assert tiny.train(tmp_path / "early", data, **early).early
    with monkeypatch.context() as patch:
        tiny.full_disk(patch, range(5, 13))
        tiny.stop_after(patch, 7)
        with pytest.raises(UserError, match=f"^{run}/checkpoints/step-.*No space left") as error:
            tiny.train(run, data)
    assert str(error.value).endswith("the last checkpoint is intact, resume with the same command")
    assert newest(run).name == "step-00000004" and not [*run.glob("checkpoints/.nmt*")]
    tiny.train(run, data)
    assert same(run, whole)


def test_fewer_checkpoints_make_room_on_a_full_disk(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for five checkpoints, and nothing else while there are more."""
    run, write = tmp_path / "run", Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if len([*run.glob("checkpoints/step-*")]) > 4:
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 9)
        tiny.train(run, data, trainer__keep_checkpoints=5)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"trainer\.keep_checkpoints=2"):
        tiny.train(run, data, trainer__keep_checkpoints=6)
    tiny.train(run, data, trainer__keep_checkpoints=2)
    assert same(run, whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_records_that_a_full_disk_refuses_are_told_once(
    data: Prepared,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".nmt-lock").touch()  # of a first try
    for name in ("train.log", "metrics.jsonl"):
        (run / name).symlink_to("/dev/full")
    monkeypatch.setattr(logging.root, "handlers", [caplog.handler])  # others' streams are closed
    tiny.train(run, data)
    err = capfd.readouterr().err
    for name in ("train.log", "metrics.jsonl"):
        line = f"{run / name}: No space left on device; training continues"
        assert caplog.text.count(line) == 1
    assert "Traceback" not in err and "Logging error" not in err
    assert tiny.digest(newest(run) / "model.safetensors") == tiny.digest(
        newest(whole) / "model.safetensors"
    )


CHILD = """
import sys, time
from pathlib import Path
import pytest
from tests.training import tiny
tiny.without_compiler()
tiny.at_update(pytest.MonkeyPatch(), 7, lambda optimizer: time.sleep(600))
tiny.train(Path(sys.argv[1]), tiny.prepared(Path(sys.argv[2])))
"""


def test_kill_9_and_resume(data: Prepared, whole: Path, tmp_path: Path) -> None:
    run, root = tmp_path / "run", str(Path(nmt.__file__).parents[1])
    killed = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(run), str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        cwd=root,
    )
    deadline = time.monotonic() + 120
    while not (run / "checkpoints/step-00000006").exists():
        assert killed.poll() is None, killed.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(UserError, match=f"in use by process {killed.pid} on") as error:
        tiny.reopen(run)
    assert error.value.code == Exit.CANT_CREATE
    killed.kill()
    killed.communicate()
    tiny.train(run, data)  # the kernel has freed the lock
    assert same(run, whole)
    assert not [p for p in run.rglob("*") if atomic.owner_of(p)]


def test_a_second_signal_does_not_undo_the_first(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster sends SIGUSR1 and then SIGTERM; a terminal SIGINT, and the parent SIGTERM."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            tiny.stop_after(patch, 3, number)
        outcome = tiny.train(run, data)
    assert (outcome.step, outcome.code) == (3, Exit.USER_SIGNAL)
    assert str(outcome).endswith("at step 3, saved; resume with the same command")
    tiny.train(run, data)
    assert same(run, whole)
