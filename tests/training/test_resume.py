"""A run that was stopped ends in the very bytes of a run that was not."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import nmt
from nmt import modeldir
from nmt.corpus.prepare import Prepared, prepare
from nmt.errors import Exit, UserError
from nmt.model.layers import EncoderLayer
from nmt.system import atomic
from nmt.toy import pairs
from nmt.training import validation
from nmt.training.trainer import Trainer
from tests.fast import fast_first
from tests.training import tiny

WEIGHTS = "model.safetensors"


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("step-*"))


CLOCK = {"seconds", "tokens_per_second", "memory_bytes"}  # differ from run to run


def reports(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what clocks say."""
    lines = tiny.lines(path)
    return [{key: value for key, value in line.items() if key not in CLOCK} for line in lines]


def same(run: Path, other: Path) -> bool:
    """Same last step, weights, moments and random state; same best; same reports."""

    def seen(path: Path) -> list[object]:
        files = [tiny.digest(newest(path) / f) for f in (WEIGHTS, "optim.safetensors")]
        state = json.loads((newest(path) / "state.json").read_bytes())
        for key in [key for key in state if "seconds" in key]:
            del state[key]
        return [newest(path).name, *files, (path / "best").read_bytes(), reports(path), state]

    return seen(run) == seen(other)


# 4 steps an epoch, checkpoints at 2, 4, 6, ...: within an epoch, at a save, at an epoch's end
SLOW = pytest.mark.slow


@pytest.mark.parametrize("stop", fast_first(2, [1, 4, 2, 7]))
def test_stop_and_resume(
    stop: int, data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, stop)
        outcome = tiny.train(tmp_path / "run", data)
    assert (outcome.step, outcome.code) == (stop, Exit.TERMINATED)
    assert str(outcome).endswith("resume with the same command")
    assert tiny.train(tmp_path / "run", data).code == Exit.OK
    assert same(tmp_path / "run", whole)


@pytest.mark.slow
def test_joined_lines_are_drawn_again_as_they_were(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = {"data__join": 3, "data__max_length": 14, "trainer__max_epochs": 3}
    tiny.train(tmp_path / "whole", data, **joined)
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 5)  # within an epoch
        tiny.train(tmp_path / "run", data, **joined)
    tiny.train(tmp_path / "run", data, **joined)
    assert same(tmp_path / "run", tmp_path / "whole")
    facts = modeldir.load(tmp_path / "run").facts
    assert 9 < facts["longest_source"] <= 14, "that of joined lines, not of single ones"
    tiny.train(tmp_path / "single", data, **{**joined, "data__join": 1})
    assert not same(tmp_path / "single", tmp_path / "whole")


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=SLOW)])
def test_text_is_segmented_at_random_again_as_it_was(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {
        "data__cache": str(tmp_path), "segmenter__merges": 40, "data__workers": workers,
        "data__bpe_dropout": 0.3, "trainer__max_epochs": 2, "trainer__accumulate": 2,
    }  # fmt: skip
    for part, count in (("train", 64), ("dev", 16)):
        drawn = pairs(count, 3, 9, part)
        for i, side in enumerate(("source", "target")):
            lines = [pair[i] for pair in drawn]
            file = tmp_path / f"{part}.{side}"
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            changes[f"data__{file.stem}_{side}"] = str(file)
    chosen = tiny.settings(**changes)
    data = prepare(chosen.data, chosen.segmenter)
    tiny.train(tmp_path / "whole", data, **changes)
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 8)  # in the second epoch
        tiny.train(tmp_path / "run", data, **changes)
    tiny.train(tmp_path / "run", data, **changes)
    assert same(tmp_path / "run", tmp_path / "whole")
    tiny.train(tmp_path / "plain", data, **{**changes, "data__bpe_dropout": 0.0})
    assert not same(tmp_path / "plain", tmp_path / "whole")


def test_a_full_disk_at_an_early_end_is_an_error(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = {"trainer__early_stopping": 1, "trainer__dev_metric": "bleu"}
    scores = iter([10.0, 9.0] * 2)  # the second ends it
    monkeypatch.setattr("nmt.training.validation.dev_score", lambda *_: next(scores))
    with monkeypatch.context() as patch:
        full_disk(patch, range(3, 20))
        with pytest.raises(UserError, match="No space left on device") as error:
            tiny.train(tmp_path / "run", data, **ending)
    assert error.value.code == Exit.IO
    assert tiny.train(tmp_path / "run", data, **ending).early


@pytest.mark.parametrize("dead", [5, *(pytest.param(n, marks=SLOW) for n in (1, 3))])
def test_train_lines_average_over_the_same_updates_after_a_kill(
    dead: int, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines come every 3 steps and checkpoints every 2, so most kills cut a window in two."""
    tiny.train(tmp_path / "whole", data, trainer__log_every=3)
    update = Trainer.update

    def killed(self: Trainer, signal: int = 0) -> int:
        signal = update(self, signal)
        if self.step == dead:
            raise SystemExit  # nothing is saved
        return signal

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", killed)
        with pytest.raises(SystemExit):
            tiny.train(tmp_path / "run", data, trainer__log_every=3)
    tiny.train(tmp_path / "run", data, trainer__log_every=3)
    assert reports(tmp_path / "run") == reports(tmp_path / "whole")
    assert [line["step"] for line in reports(tmp_path / "run") if line["kind"] == "train"] == [
        *(3, 6, 9, 12)
    ]


RANDOM = {"sine_spe": {"mode": "stochastic", "realizations": 4}, "absolute": {"at": "shift"}}


@SLOW
@pytest.mark.parametrize("encoding", [{"absolute": {}}, RANDOM], ids=["absolute", "random"])
def test_gradient_checkpointing_may_come_and_go(
    encoding: dict[str, Any], data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that computes its layers twice, all along or for a while, ends in the same bytes."""
    plain, always, both = (tmp_path / name for name in ("plain", "always", "both"))
    once_each = {"encoding": encoding, "trainer__max_epochs": 2}
    tiny.train(plain, data, **once_each)
    twice = {**once_each, "trainer__gradient_checkpointing": True}
    calls: list[int] = []
    forward = EncoderLayer.forward

    def counted(self: EncoderLayer, *args: Any) -> Tensor:
        calls.append(1)
        return forward(self, *args)

    monkeypatch.setattr(EncoderLayer, "forward", counted)
    tiny.train(always, data, **twice)
    once = len(calls)
    for stop, changes in ((3, twice), (5, once_each)):
        with monkeypatch.context() as patch:
            tiny.stop_after(patch, stop)
            assert tiny.train(both, data, **changes).step == stop
    tiny.train(both, data, **twice)
    assert once > len(calls) - once  # of 8 updates, 2 were computed once
    assert same(always, plain) and same(both, plain)


@pytest.mark.parametrize("optim", ["plateau", pytest.param("inverse_sqrt", marks=SLOW)])
def test_resume_right_after_a_cut_of_the_rate(
    optim: str, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        validation, "perplexity", lambda *_: 7.0
    )  # each checkpoint but the first stalls
    values = {**vars(tiny.settings().optim), "patience": 2}
    if optim == "inverse_sqrt":
        values = {k: v for k, v in values.items() if k not in ("decay", "patience", "min_lr")}
        values.update(kind=optim, warmup=5)
    tiny.train(tmp_path / "whole", data, optim=values)
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 6)  # stalls at 4 and 6
        tiny.train(tmp_path / "run", data, optim=values)
    state = json.loads((newest(tmp_path / "run") / "state.json").read_bytes())
    if optim == "plateau":
        assert [state["schedule"][key] for key in ("lr", "best", "stalled")] == [0.005, [7.0], 0]
    tiny.train(tmp_path / "run", data, optim=values)
    assert same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_more_steps_later_equal_more_steps_at_first(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        validation, "perplexity", lambda *_: 7.0
    )  # a look too many would cut the rate
    run, whole = tmp_path / "run", tmp_path / "whole"
    for steps in (3, 7, None):  # 3 and 7 lie between two checkpoints of the timetable
        tiny.train(run, data, trainer__max_steps=steps, optim__patience=3)
    tiny.train(whole, data, optim__patience=3)
    for name in (WEIGHTS, "optim.safetensors"):
        assert tiny.digest(newest(run) / name) == tiny.digest(newest(whole) / name)


def test_a_failed_write_stops_with_74_and_harms_nothing(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Trainer.save

    def full(self: Trainer, cost: list[float] | None) -> None:
        if self.step == 6:
            raise OSError(5, "Input/output error", str(self.run.path))
        save(self, cost)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", full)
        with pytest.raises(UserError, match=r"Input/output error.*resume") as error:
            tiny.train(tmp_path / "run", data)
    assert error.value.code == Exit.IO
    tiny.train(tmp_path / "run", data)
    assert same(tmp_path / "run", whole)


def full_disk(patch: pytest.MonkeyPatch, steps: range) -> None:
    """A disk without room for the checkpoints of some steps, from their second file on."""
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name != "config.json" and any(f"step-{n:08d}" in str(path) for n in steps):
            raise OSError(28, "No space left on device", str(path))
        return write(path, data)

    patch.setattr(Path, "write_bytes", full)


def test_a_full_disk_costs_a_checkpoint_and_not_the_training(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    averaged = {"trainer__ema": 0.9}  # a failure midway must not leave the average in the model
    tiny.train(tmp_path / "whole", data, **averaged)
    assert "trying again at the next one" not in caplog.text
    with monkeypatch.context() as patch:
        full_disk(patch, range(3, 9))
        tiny.train(tmp_path / "run", data, **averaged)
    assert caplog.text.count("trying again at the next one") == 3
    assert same(tmp_path / "run", tmp_path / "whole")


def test_a_disk_without_room_for_the_last_checkpoint_ends_with_74(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for stop in (12, 7):  # its end, and a signal's
        with monkeypatch.context() as patch:
            full_disk(patch, range(5, 13))
            if stop == 7:
                tiny.stop_after(patch, stop)
            with pytest.raises(UserError, match="No space left on device") as error:
                tiny.train(run, data)
        assert error.value.code == Exit.IO
        assert str(error.value).startswith(f"{run}/checkpoints/step-")
        assert str(error.value).endswith(
            "the last checkpoint is intact, resume with the same command"
        )
        assert newest(run).name == "step-00000004" and not [*run.glob("checkpoints/.nmt*")]
    tiny.train(run, data)
    assert same(run, whole)


def test_a_disk_without_room_for_the_first_checkpoint_ends_training_there(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        full_disk(patch, range(1, 13))
        with pytest.raises(UserError, match="make room") as error:
            tiny.train(run, data)
    assert error.value.code == Exit.IO and [x["step"] for x in tiny.lines(run, "dev")] == [2]
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
    with pytest.raises(UserError, match="No space left") as error:
        tiny.train(run, data, trainer__keep_checkpoints=6)
    assert "trainer.keep_checkpoints=2" in str(error.value)
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
    """Every record goes to /dev/full; what is trained is the same."""
    run, replace = tmp_path / "run", atomic.replace
    run.mkdir()
    (run / "train.log").symlink_to("/dev/full")
    (run / "metrics.jsonl").symlink_to("/dev/full")

    def full(path: Path, data: bytes) -> None:
        if path.name == "best":
            raise OSError(28, "No space left on device", str(path))
        replace(path, data)

    monkeypatch.setattr(atomic, "replace", full)
    monkeypatch.setattr(logging.root, "handlers", [caplog.handler])  # others' streams are closed
    (run / ".nmt-lock").touch()  # of a first try
    tiny.train(run, data)
    err = capfd.readouterr().err
    for name in ("train.log", "metrics.jsonl", "best"):
        line = f"{run / name}: No space left on device; training continues"
        assert caplog.text.count(line) == 1
    assert "Traceback" not in err and "Logging error" not in err
    assert tiny.digest(newest(run) / WEIGHTS) == tiny.digest(newest(whole) / WEIGHTS)


CHILD = """
import logging, sys, time
from pathlib import Path
from tests.training import tiny
logging.basicConfig(level=logging.INFO)
tiny.without_compiler()
run, hang = Path(sys.argv[1]), sys.argv[3] == "hang"
update = tiny.Trainer.update
def slowly(self, signal=0):  # lest all is over before the test has looked
    signal = update(self, signal)
    time.sleep(0.2 if not hang else 600 if self.step == 7 else 0)
    return signal
tiny.Trainer.update = slowly
outcome = tiny.train(run, tiny.prepared(run.with_name(sys.argv[2])))
sys.stderr.write(str(outcome))
sys.exit(outcome.code)
"""


def child(run: Path, name: str, pace: str) -> subprocess.Popen[bytes]:
    root = str(Path(nmt.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(run), name, pace],
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        cwd=root,
    )


def wait_for(process: subprocess.Popen[bytes], path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_kill_9_and_resume(data: Prepared, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed = child(run, "data", "hang")
    wait_for(killed, run / "checkpoints/step-00000006")
    with pytest.raises(UserError, match=f"in use by process {killed.pid} on") as error:
        tiny.reopen(run)
    assert error.value.code == Exit.CANT_CREATE
    killed.kill()
    killed.communicate()
    tiny.train(run, data)  # the kernel has freed the lock
    assert same(run, whole)
    assert not [p for p in run.rglob("*") if atomic.owner(p)]


@pytest.mark.parametrize(
    "first",
    [signal.SIGUSR1, *(pytest.param(s, marks=SLOW) for s in (signal.SIGTERM, signal.SIGINT))],
)
def test_a_second_signal_does_not_undo_the_first(
    first: signal.Signals,
    data: Prepared,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cluster sends SIGUSR1 and then SIGTERM; a terminal SIGINT, and the parent SIGTERM."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "_exit", lambda code: pytest.fail(f"left with {code}"))
        for number in (first, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            tiny.stop_after(patch, 3, number)
        outcome = tiny.train(run, data)
    assert (outcome.step, outcome.code) == (3, 128 + first)
    assert f"stopped by {first.name} at step 3, saved" in str(outcome)
    tiny.train(run, data)
    assert same(run, whole)


@pytest.mark.slow
def test_a_signal_from_outside(data: Prepared, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stopped = child(run, "data", "slowly")
    wait_for(stopped, run / "checkpoints/step-00000002")
    stopped.send_signal(signal.SIGINT)
    error = stopped.communicate()[1]
    assert (stopped.returncode, b"Traceback" in error) == (130, False), error.decode()
    assert b"resume with the same command" in error
    tiny.train(run, data)
    assert same(run, whole)
