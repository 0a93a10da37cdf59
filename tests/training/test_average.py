"""The mean of checkpoints: which are taken, what is written, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt import build, modeldir
from nmt.cli import average as command
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.modeldir import WEIGHTS
from nmt.system import manifest
from nmt.training import average
from nmt.training.checkpoint import STATE, Checkpoints
from tests.test_modeldir import resealed
from tests.training import tiny

COSTS = [9.0, 4.0, 6.0, 5.0, None, 7.0, 8.0]  # dev perplexities, and none after a signal
STEPS = [2, 4, 6, 8, 9, 10, 12]  # of the checkpoints


@pytest.fixture(scope="module")
def run(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It keeps the checkpoints of steps 4 (the best), 8, 10 and 12; look, do not touch."""
    return written(tmp_path_factory.mktemp("runs") / "run", data)


def written(run: Path, data: Prepared, with_signal: bool = False) -> Path:
    """A run that keeps three checkpoints and the best, each of other weights."""
    (run / "checkpoints").mkdir(parents=True)
    kept = Checkpoints(run, keep=3)
    settings = tiny.settings(trainer__keep_checkpoints=3)
    measured = 0
    for number, cost in zip(STEPS, COSTS, strict=True):
        if cost is None and not with_signal:
            continue
        measured += cost is not None
        torch.manual_seed(number)
        size = len(data.source.vocabulary)
        model = build.transformer(settings, size, size)
        costs = [cost] if cost else None
        facts = {**data.facts, "step": number, "dev_perplexity": cost}
        state = {"step": number, "cost": costs, "checkpoints": measured}
        parts = modeldir.parts(settings, model, data.source, data.target, facts)
        kept.save(number, costs, [*parts, (STATE, manifest.dump(state))])
    return run


def step(run: Path, number: int) -> Path:
    return run / f"checkpoints/step-{number:08d}"


@pytest.mark.parametrize(
    ("option", "count", "steps"), [("--last", 3, [8, 10, 12]), ("--best", 2, [4, 8])]
)
def test_the_weights_are_the_mean(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
    count: int,
    steps: list[int],
) -> None:
    output = tmp_path / "mean"
    assert command.main([str(run), option, str(count), "-o", str(output)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    parts = [load_file(step(run, number) / WEIGHTS) for number in steps]
    made = load_file(output / WEIGHTS)
    for name, tensor in made.items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        assert tensor.dtype == torch.float32 and torch.equal(tensor, mean.float()), name
    assert made.keys() == parts[0].keys() and not torch.equal(
        made["source_embedding.weight"], parts[0]["source_embedding.weight"]
    )
    again = modeldir.load(output)
    assert "dev_perplexity" not in again.facts and again.facts["step"] == steps[-1]
    assert again.facts["longest_source"] == 9
    assert [each["step"] for each in again.facts["averaged"]] == steps
    dev = [COSTS[STEPS.index(number)] for number in steps]
    assert [each["dev_perplexity"] for each in again.facts["averaged"]] == dev
    sums = [each["weights_sha256"] for each in again.facts["averaged"]]
    assert sums == [modeldir.weights_sha256(step(run, number)) for number in steps]
    assert str(run) not in (output / "facts.json").read_text()


def test_checkpoints_that_training_removes_meanwhile_are_listed_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    later, read = step(copy, 12).rename(tmp_path / "12"), Path.read_bytes

    def rotated(path: Path) -> bytes:
        if path.name == "config.json" and later.exists():  # the first model is about to be read
            later.rename(step(copy, 12))
            shutil.rmtree(step(copy, 8))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", rotated)
    mean = average.average_run(copy, 2, "last")
    assert [each["step"] for each in mean.facts["averaged"]] == [10, 12]


def test_named_models_and_a_run_for_its_best(run: Path, tmp_path: Path) -> None:
    names = [str(step(run, 8)), str(run), str(step(run, 12))]
    assert command.main([*names, "-o", str(tmp_path / "a")]) == 0
    facts = modeldir.read_facts(tmp_path / "a")
    assert [each["step"] for each in facts["averaged"]] == [8, 4, 12]


def test_a_checkpoint_of_a_signal_does_not_count(run: Path, data: Prepared, tmp_path: Path) -> None:
    other = written(tmp_path / "run", data, with_signal=True)
    assert step(other, 9).is_dir() and not step(run, 9).exists()
    first, second = (
        modeldir.weights(average.average_run(r, 3, "last").model) for r in (run, other)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


def altered(model: Path, name: str, change: Any) -> None:
    """Change a JSON file of a model directory, and its manifest."""
    plain = json.loads((model / name).read_bytes())
    change(plain)
    resealed(model, name, manifest.dump(plain))


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("config.json", lambda plain: plain.update(seed=8), r"another config .* seed: 3 -> 8;"),
        ("config.json", lambda plain: plain["trainer"].update(max_steps=99), None),
        ("facts.json", lambda plain: plain.update(fingerprint="other"), "trained on other text"),
        (
            "target.json",
            lambda plain: plain["vocabulary"].reverse(),
            "another segmenter or vocabulary",
        ),
    ],
)
def test_models_of_two_kinds_have_no_mean(
    run: Path, tmp_path: Path, name: str, change: Any, told: str | None
) -> None:
    other = shutil.copytree(step(run, 10), tmp_path / "other")
    altered(other, name, change)
    if told is None:
        average.average_models([run, other])
        return
    with pytest.raises(UserError, match=f"{other}: {told}") as refused:
        average.average_models([run, other])
    assert refused.value.code == Exit.DATA
    mixed = shutil.copytree(run, tmp_path / "mixed")  # the same within a run
    shutil.rmtree(step(mixed, 10))
    shutil.copytree(other, step(mixed, 10))
    with pytest.raises(UserError, match=told.partition(":")[0]):
        average.average_run(mixed, 2, "last")


def test_a_damaged_checkpoint_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    here = shutil.copytree(run, tmp_path / "run")
    (step(here, 8) / WEIGHTS).write_bytes(b"")
    with pytest.raises(UserError, match="step-00000008"):
        average.average_run(here, 3, "best")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["RUN"], 2, "one model has no mean; add --last K or --best K"),
        (["none", "--last", "2"], 66, "none: no run of nmt-train (it has no checkpoints)"),
        (["RUN", "RUN"], 65, "; give each model once"),
        (["RUN", "--last", "5"], 65, "--last 5: it keeps only 3 such checkpoints; give fewer"),
        (["RUN", "--best", "5"], 65, "it keeps only 4 such checkpoints; give fewer, or train with"),
    ],
)
def test_wrong_arguments(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    told: str,
) -> None:
    given = [str(run) if word == "RUN" else word for word in words]
    assert command.main([*given, "-o", str(tmp_path / "mean")]) == code
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert command.main([str(run), "--last=2", "-o", str(tmp_path)]) == Exit.CANT_CREATE
