"""Means of weights: of several models, and of one model while it is trained (trainer.ema).

Vaswani et al. (2017), section 6.1, translate with the mean of a run's last 5 or 20 checkpoints.
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt import modeldir
from nmt.config.settings import freeze
from nmt.errors import Exit, UserError
from nmt.modeldir import CHECKPOINTS, Trained
from nmt.system.manifest import VerifiedDirectory
from nmt.training.checkpoint import STATE, Saved
from nmt.training.directory import differences

log = logging.getLogger(__name__)

AVERAGED, PERPLEXITY = "averaged", "dev_perplexity"  # in facts.json


@torch.no_grad()
def move_average(average: nn.Module, model: nn.Module, step: int, decay: float) -> None:
    """Update an exponential moving average of weights after update `step`, counted from 1.

    Marian calls it exponential smoothing. The decay is at most (1 + step) / (10 + step), as in
    TensorFlow's ExponentialMovingAverage, so that the random start is soon forgotten.
    """
    weight = 1 - min(decay, (1 + step) / (10 + step))  # of the model
    torch._foreach_lerp_([*average.parameters()], [*model.parameters()], weight)


def average_run(run: Path, count: int, which: str) -> Trained:
    """Return the mean of the `count` "last" or "best" checkpoints of a run.

    Checkpoints that were saved on a signal do not count, as an uninterrupted run has none of them.
    Raises UserError: 66 without a run, 65 for too few, damaged or mixed checkpoints.
    """
    directory = run / CHECKPOINTS
    if not directory.is_dir():
        raise UserError(
            f"{run}: no run of nmt-train (it has no {CHECKPOINTS}); give a run, or several models",
            Exit.NO_INPUT,
        )
    while True:
        paths = modeldir.checkpoints(directory)
        try:
            saved = [Saved(path, VerifiedDirectory(path).json(STATE)) for path in paths]
            return _mean([s.path for s in _choose(run, saved, count, which)])
        except (UserError, OSError):
            if modeldir.checkpoints(directory) == paths:
                raise  # else training has removed one meanwhile, and has written another


def _choose(run: Path, saved: list[Saved], count: int, which: str) -> list[Saved]:
    """Choose the newest, or the best by trainer.dev_metric (of equals the oldest), oldest first.

    Of the newest, none may be missing between two: only consecutive checkpoints are averaged.
    """
    chosen = [s for s in saved if s.cost is not None]
    if which == "best":
        ranked = sorted(chosen, key=lambda s: (s.cost, s.step))[:count]
        chosen = sorted(ranked, key=lambda s: s.step)
    else:
        numbers = [s.state["checkpoints"] for s in chosen]
        # an earlier one was kept because it is the best, and those after it are gone
        gaps = [i for i, (a, b) in enumerate(pairwise(numbers), start=1) if b > a + 1]
        chosen = chosen[max(gaps, default=0) :][-count:]
    if len(chosen) < count:
        raise UserError(
            f"{run}: --{which} {count}: it keeps only {len(chosen)} such checkpoints; give fewer, "
            f"or train with a higher trainer.keep_{'best' if which == 'best' else 'checkpoints'}",
            Exit.DATA,
        )
    return chosen


def average_models(paths: Sequence[Path]) -> Trained:
    """Return the mean of models of one config, text and vocabulary; a run means its best."""
    by_weights: dict[str, Path] = {}
    for path in paths:
        same = by_weights.setdefault(modeldir.weights_sha256(path), path)
        if same is not path:
            raise UserError(f"{path}: has the weights of {same}; give each model once", Exit.DATA)
    return _mean([modeldir.locate(path) for path in paths])


def _mean(paths: Sequence[Path]) -> Trained:
    """Return the last model with the mean of all weights, summed up in float64."""
    sums: dict[str, Tensor] = {}
    averaged: list[dict[str, Any]] = []  # with no path of this machine
    first = newest = modeldir.load(paths[0])
    for path in paths:
        newest = modeldir.load(path)
        _check_same_training(paths[0], first, path, newest)
        for name, tensor in modeldir.weights(newest.model).items():
            sums[name] = sums.get(name, 0) + tensor.double()
        about = {k: v for k, v in newest.facts.items() if k in ("step", PERPLEXITY, AVERAGED)}
        sha256 = modeldir.weights_sha256(path)
        averaged.append({"name": path.name, "weights_sha256": sha256, **about})
    means = {
        name: (sums[name] / len(paths)).to(tensor.dtype)
        for name, tensor in modeldir.weights(newest.model).items()
    }
    modeldir.set_weights(newest.model, means, paths[-1])
    facts = {key: value for key, value in newest.facts.items() if key != PERPLEXITY}
    log.info("mean of %d models: %s", len(paths), ", ".join(path.name for path in paths))
    return newest._replace(facts={**facts, AVERAGED: averaged}, digest="")


def _check_same_training(first_path: Path, first: Trained, path: Path, other: Trained) -> None:
    """Raise UserError (65) unless two models may be checkpoints of one training."""
    sides = [(model.source.to_json(), model.target.to_json()) for model in (first, other)]
    if changes := differences(freeze(first.settings), freeze(other.settings)):
        reason = f"another config than that of {first_path}: {', '.join(changes)}"
    elif first.facts.get("fingerprint") != other.facts.get("fingerprint"):
        reason = f"trained on other text than {first_path}"
    elif sides[0] != sides[1]:
        reason = f"another segmenter or vocabulary than that of {first_path}"
    else:
        return
    raise UserError(f"{path}: {reason}; only checkpoints of one run have a mean", Exit.DATA)
