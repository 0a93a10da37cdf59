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
from tests.training import tiny
from tests.training.tiny import newest

EMA = {"trainer__ema": 0.3, "trainer__max_steps": 8}  # a decay that eight updates reach


def followed(run: Path, data: Prepared, patch: pytest.MonkeyPatch, **changes: Any) -> list[Any]:
    """Train, and return the parameters after each update, in their order."""
    seen: list[list[Tensor]] = []

    def look(optimizer: torch.optim.Optimizer) -> None:
        parameters = optimizer.param_groups[0]["params"]
        seen.append([p.detach().double().clone() for p in parameters])

    with patch.context() as inner:
        tiny.at_update(inner, None, look)
        tiny.train(run, data, **changes)
    return seen


def parameters(path: Path) -> list[Tensor]:
    """Those of a model, in the order of its optimizer."""
    return [p.detach().double() for p in modeldir.load(path).model.parameters()]


def test_the_average_is_saved_and_evaluated_and_the_training_is_that_without_it(
    data: Prepared, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with the weights of the start, here those of a parent."""
    start = {"trainer__init_from": str(whole), "optim__patience": 9}  # no rate follows the average
    after = followed(tmp_path / "run", data, monkeypatch, **EMA, **start)
    assert len(after) == 8
    mean = parameters(whole)
    for step, weights in enumerate(after, 1):
        share = min(0.3, (1 + step) / (10 + step))
        mean = [share * m + (1 - share) * w for m, w in zip(mean, weights, strict=True)]
    last = newest(tmp_path / "run")
    for saved, value in zip(parameters(last), mean, strict=True):
        torch.testing.assert_close(saved, value, rtol=0, atol=1e-6)
    raw, saved_weights = load_file(last / RAW), load_file(last / WEIGHTS)
    assert any((saved_weights[k] - raw[k]).abs().max() > 1e-3 for k in raw)
    changes = {**start, "trainer__max_steps": 8}
    without = followed(tmp_path / "plain", data, monkeypatch, **changes)
    assert all(map(torch.equal, without[-1], after[-1]))
    plain = load_file(newest(tmp_path / "plain") / WEIGHTS)
    assert all(torch.equal(plain[name], raw[name]) for name in raw)
    assert not (newest(tmp_path / "plain") / RAW).exists()
    trained = modeldir.load(last)
    dev, none = in_order(data.dev, 64, "max"), torch.autocast("cpu", enabled=False)
    found = validation.perplexity(trained.model, dev, torch.device("cpu"), none)
    assert math.isclose(found, trained.facts["dev_perplexity"], rel_tol=1e-12)
