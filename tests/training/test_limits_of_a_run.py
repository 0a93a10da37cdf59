"""Batches halved for want of memory, frozen parts, and the callback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from nmt import modeldir
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training import loss
from nmt.training import run as training
from tests.training import tiny


def test_time_is_counted_from_the_opening_of_the_run(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("nmt.training.directory.time.monotonic", lambda: now[0])
    run = tiny.reopen(tmp_path / "run", trainer__max_hours=2.0)
    now[0] = 7199.0
    assert run.seconds_left() == 1.0
    assert tiny.reopen(tmp_path / "other").seconds_left() == float("inf")


@contextmanager
def memory_for(patch: pytest.MonkeyPatch, rows: int) -> Iterator[None]:
    """Let larger batches than of so many rows fail in the backward pass, as a GPU would."""

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def limited(module: object, inputs: Any, output: Any) -> Any:
        mean, sums = output
        return (Fails.apply(mean), sums) if len(inputs[0].source) > rows else None

    with patch.context() as inner:
        tiny.at_module(inner, loss.Objective, limited)
        yield


def test_halved_batches_give_the_same_weights(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    changes = {key: value for key, value in tiny.EXACT.items() if "dropout" in key}
    changes |= {"trainer__max_steps": 4, "optim__eps": 1e-4}
    tiny.train(tmp_path / "whole", data, **changes)
    with memory_for(monkeypatch, 12):
        tiny.train(tmp_path / "run", data, **changes)
    assert tiny.lines(tmp_path / "run", "split")
    assert "out of memory; its batches are halved" in caplog.text
    whole, halved = (weights_of(tmp_path / run) for run in ("whole", "run"))
    for name, tensor in whole.items():
        torch.testing.assert_close(halved[name], tensor, atol=1e-5, rtol=1e-4)
    assert any(not torch.equal(halved[name], tensor) for name, tensor in whole.items())


@pytest.mark.parametrize("begun", [True, False])
def test_a_second_failure_is_an_error_with_advice(
    begun: bool, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if begun:
        tiny.train(tmp_path / "run", data, trainer__max_steps=1)
    for already in (False, True):
        twice = {"trainer__gradient_checkpointing": already}
        with memory_for(monkeypatch, 1), pytest.raises(UserError) as error:
            tiny.train(tmp_path / "run", data, **twice)
        assert error.value.code == Exit.NO_MEMORY
        told = str(error.value)
        assert "lower trainer.batch_tokens" in told and ("name=" in told) == begun
        assert ("trainer.gradient_checkpointing=true" in told) is not already


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return modeldir.weights(modeldir.load(run).model)


def test_frozen_parts_stay_and_the_rest_moves(data: Prepared, tmp_path: Path) -> None:
    frozen = ["encoder", "embeddings"]
    changes = {"encoding": {"relative": {"tau": 3}}, "trainer__freeze": frozen}
    tiny.train(tmp_path / "start", data, trainer__max_steps=1, **changes)
    tiny.train(tmp_path / "run", data, trainer__max_steps=4, **changes)
    before, after = (weights_of(tmp_path / run) for run in ("start", "run"))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    same = set(before) - moved
    assert {name.split(".")[0] for name in same} >= {"encoder", "encoder_encodings"}
    assert not any(name.startswith(("encoder", "source_emb", "target_emb")) for name in moved)
    assert {name.split(".")[0] for name in moved} >= {"decoder", "decoder_encodings"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["encodr"], "no parameter is named encodr; known are encoder, decod"),
        (["encoder", "decoder", "embeddings", "output"], "nothing is left to train"),
    ],
)
def test_names_to_freeze_are_checked(names: list[str], message: str, tmp_path: Path) -> None:
    settings = tiny.settings(trainer__freeze=names, data__cache=str(tmp_path))
    with pytest.raises(UserError, match=message):
        training.train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


Told = list[tuple[dict[str, Any], Path]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What callbacks are called with: one that is sound, and two that fail."""
    module: Any = ModuleType("tracking")
    lines: Told = []

    def tell(line: dict[str, Any], run: Path) -> None:
        lines.append((line, run))

    def fails(line: dict[str, Any], run: Path) -> None:
        tell(line, run)
        raise OSError("no network")

    def leaves(line: dict[str, Any], run: Path) -> None:
        tell(line, run)
        sys.exit("no budget left")

    module.tell, module.fails, module.leaves = tell, fails, leaves
    monkeypatch.setitem(sys.modules, "tracking", module)
    return lines


def test_the_callback_is_told_of_each_line(data: Prepared, tmp_path: Path, told: Told) -> None:
    tiny.train(tmp_path / "run", data, trainer__callback="tracking:tell", trainer__max_steps=4)
    assert [line for line, _ in told] == tiny.lines(tmp_path / "run")
    assert {run for _, run in told} == {tmp_path / "run"}


@pytest.mark.parametrize(("name", "error"), [("fails", "OSError"), ("leaves", "SystemExit")])
def test_a_callback_that_fails_stops_nothing(
    name: str,
    error: str,
    data: Prepared,
    tmp_path: Path,
    told: Told,
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback = f"tracking:{name}"
    outcome = tiny.train(tmp_path / "run", data, trainer__callback=callback, trainer__max_steps=4)
    assert len(told) == 1 and outcome.step == 4
    assert f"trainer.callback={callback}: {error} at" in caplog.text


@pytest.mark.parametrize(
    ("named", "module", "message"),
    [
        ("nowhere:tell", "", "No module named 'nowhere'; give package:function"),
        ("mine:number", "number = 3", "not a function"),
        ("a b", "", "give package:function"),
        ("mine:tell", "import sys; sys.exit(3)", "SystemExit at mine.py:1: 3"),
    ],
)
def test_a_callback_that_cannot_be_had_is_refused_first(
    named: str, module: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    settings = tiny.settings(trainer__callback=named, data__cache=str(tmp_path))
    with pytest.raises(UserError, match=f"^trainer.callback={named}: .*{message}"):
        training.train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()
