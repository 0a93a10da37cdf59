"""trainer.ema: the average is evaluated and saved, and training goes on from the weights."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nmt import modeldir
from nmt.corpus.batches import in_order
from nmt.corpus.prepare import Prepared
from nmt.modeldir import WEIGHTS
from nmt.training import validation
from nmt.training.checkpoint import RAW
from nmt.training.trainer import Trainer
from tests.training import tiny
from tests.training.test_resume import newest, same

EMA = {"trainer__ema": 0.9, "trainer__max_epochs": 2}  # 8 updates, a checkpoint after every other


@pytest.fixture(scope="module")
def averaged(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an average that nobody stopped; look, do not touch."""
    run = tmp_path_factory.mktemp("runs") / "averaged"
    tiny.train(run, data, **EMA)
    return run


def followed(run: Path, data: Prepared, patch: pytest.MonkeyPatch, **changes: Any) -> Any:
    """Train, and note the weights before the first update and after each."""
    seen: list[dict[str, Tensor]] = []
    update = Trainer.update

    def noting(self: Trainer, signal: int = 0) -> int:
        if not seen:
            seen.append({k: v.double() for k, v in modeldir.weights(self.model).items()})
        signal = update(self, signal)
        seen.append({k: v.double() for k, v in modeldir.weights(self.model).items()})
        return signal

    patch.setattr(Trainer, "update", noting)
    tiny.train(run, data, **changes)
    return seen


@pytest.mark.parametrize(
    "decay", [0.3, pytest.param(0.9, marks=pytest.mark.slow)]
)  # 0.3 is reached, 0.9 by none of 8 updates
def test_the_average_is_saved_and_the_training_is_that_without_it(
    decay: float, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {**EMA, "trainer__ema": decay}
    start, *after = followed(tmp_path / "run", data, monkeypatch, **changes)
    assert len(after) == 8
    mean = start
    for step, weights in enumerate(after, 1):
        share = min(decay, (1 + step) / (10 + step))
        mean = {k: share * mean[k] + (1 - share) * weights[k] for k in mean}
    saved = load_file(newest(tmp_path / "run") / WEIGHTS)
    raw = load_file(newest(tmp_path / "run") / RAW)
    for name, value in mean.items():
        assert saved[name].double() == pytest.approx(value, abs=1e-6), name
        assert torch.equal(raw[name].double(), after[-1][name])
    assert any((saved[k] - raw[k]).abs().max() > 1e-3 for k in raw)
    without = followed(tmp_path / "plain", data, monkeypatch, trainer__max_epochs=2)
    assert all(torch.equal(without[-1][name], after[-1][name]) for name in mean)
    assert not (newest(tmp_path / "plain") / RAW).exists()


def test_what_is_saved_is_what_was_evaluated(averaged: Path, data: Prepared) -> None:
    trained = modeldir.load(newest(averaged))
    cpu = torch.device("cpu")
    dev, none = in_order(data.dev, 64, "max"), torch.autocast("cpu", enabled=False)
    found = validation.perplexity(trained.model, dev, cpu, none)
    assert math.isclose(found, trained.facts["dev_perplexity"], rel_tol=1e-12)


@pytest.mark.parametrize("stop", [1, 4])  # 4: at a checkpoint; 1: before the first
def test_stop_and_resume(
    stop: int, averaged: Path, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, stop)
        assert tiny.train(run, data, **EMA).step == stop
    tiny.train(run, data, **EMA)
    assert same(run, averaged)
    assert tiny.digest(newest(run) / RAW) == tiny.digest(newest(averaged) / RAW)


def test_an_average_begins_with_the_weights_of_the_start(
    averaged: Path, data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trainer__init_from": str(averaged), "trainer__max_steps": 1, **EMA}
    start, after = followed(tmp_path / "run", data, monkeypatch, **changes)
    parent = load_file(modeldir.locate(averaged) / WEIGHTS)
    saved = load_file(newest(tmp_path / "run") / WEIGHTS)
    for name, value in parent.items():
        assert torch.equal(start[name], value.double())
        expected = 2 / 11 * start[name] + 9 / 11 * after[name]
        assert saved[name].double() == pytest.approx(expected, abs=1e-6)


def test_an_update_that_is_not_finite_leaves_the_average(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = Trainer.backward
    once = {**EMA, "trainer__max_steps": 2}

    def broken(self: Trainer, *inputs: Any) -> Any:
        sums = backward(self, *inputs)
        return sums * math.nan if self.step == 2 else sums

    monkeypatch.setattr(Trainer, "backward", broken)
    tiny.train(tmp_path / "two", data, **once)
    tiny.train(tmp_path / "one", data, **{**once, "trainer__max_steps": 1})
    one, two = (newest(tmp_path / name) for name in ("one", "two"))
    for name in (WEIGHTS, RAW):
        assert tiny.digest(one / name) == tiny.digest(two / name)
