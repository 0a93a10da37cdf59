"""The mean of checkpoints: which are taken, what is written, and what is refused."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt import modeldir
from nmt.cli import average as command
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.modeldir import WEIGHTS
from nmt.system import manifest
from nmt.training import average
from tests.test_modeldir import resealed
from tests.training import tiny

PERPLEXITIES = [9.0, 4.0, 6.0, 5.0, 7.0, 8.0]  # of the checkpoints after 2, 4, ... 12 updates


def trained(
    run: Path, data: Prepared, keep: int, patch: pytest.MonkeyPatch, **changes: Any
) -> Path:
    """A run with the dev perplexities above, which keeps so many checkpoints and the best."""
    said = iter(PERPLEXITIES)
    patch.setattr("nmt.training.validation.perplexity", lambda *_: next(said))
    tiny.train(run, data, trainer__keep_checkpoints=keep, **changes)
    return run


@pytest.fixture(scope="module")
def run(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It has the checkpoints after 4 (the best), 8, 10 and 12 updates; look, do not touch."""
    with pytest.MonkeyPatch.context() as patch:
        return trained(tmp_path_factory.mktemp("runs") / "run", data, 3, patch)


def step(run: Path, number: int) -> Path:
    return run / f"checkpoints/step-{number:08d}"


@pytest.mark.parametrize(
    ("option", "count", "steps"),
    [("--last", 2, [10, 12]), ("--last", 3, [8, 10, 12]), ("--best", 2, [4, 8])],
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
    dev = [PERPLEXITIES[number // 2 - 1] for number in steps]
    assert [each["dev_perplexity"] for each in again.facts["averaged"]] == dev
    sums = [each["weights_sha256"] for each in again.facts["averaged"]]
    assert sums == [modeldir.weights_sha256(step(run, number)) for number in steps]
    assert str(run) not in (output / "facts.json").read_text()


def test_checkpoints_that_training_removes_meanwhile_are_listed_again(
    run: Path, tmp_path: Path
) -> None:
    copy, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(run, copy)
    outside.mkdir()
    step(copy, 4).rename(outside / "4")
    step(copy, 12).rename(outside / "12")
    is_over = threading.Event()

    def rotate() -> None:
        inside, gone = 8, 12
        while not is_over.wait(0.5):
            (outside / str(gone)).rename(step(copy, gone))
            step(copy, inside).rename(outside / str(inside))
            inside, gone = gone, inside

    trainer = threading.Thread(target=rotate)
    trainer.start()
    try:
        for _ in range(12):
            mean = average.of_run(copy, 2, "last")
            assert [each["step"] for each in mean.facts["averaged"]] in ([8, 10], [10, 12])
    finally:
        is_over.set()
        trainer.join()


def test_buffers_of_integers_stay_integers(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Transformer.__init__

    def with_buffer(self: Transformer, *args: Any) -> None:
        made(self, *args)
        self.register_buffer("rows", torch.tensor([0, 2**40]))

    monkeypatch.setattr(Transformer, "__init__", with_buffer)
    run = trained(tmp_path / "run", data, 2, monkeypatch)
    assert command.main([str(run), "--last", "2", "-o", str(tmp_path / "mean")]) == 0
    assert modeldir.load(tmp_path / "mean").model.state_dict()["rows"].tolist() == [0, 2**40]


@pytest.mark.slow
def test_named_models_and_a_run_for_its_best(run: Path, tmp_path: Path) -> None:
    names = [str(step(run, 8)), str(run), str(step(run, 12))]
    assert command.main([*names, "-o", str(tmp_path / "a")]) == 0
    assert command.main([str(run), "--best", "3", "-o", str(tmp_path / "b")]) == 0  # 4, 8 and 10
    facts = json.loads((tmp_path / "a/facts.json").read_bytes())
    assert [each["step"] for each in facts["averaged"]] == [8, 4, 12]
    assert modeldir.weights_sha256(tmp_path / "a") != modeldir.weights_sha256(tmp_path / "b")
    equal = [tmp_path / name for name in "xyz"]  # in float32, thirds of a sum would not be exact
    for number, path in enumerate(equal):
        parts = modeldir.load(step(run, 8))
        modeldir.save(parts._replace(facts={**parts.facts, "step": number}), path)
    whole = average._mean(equal)
    for name, tensor in modeldir.weights(whole.model).items():
        assert torch.equal(tensor, load_file(equal[0] / WEIGHTS)[name])


def test_a_checkpoint_of_a_signal_does_not_count(
    data: Prepared, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 9)
        trained(tmp_path / "run", data, 3, patch)
    said = iter(PERPLEXITIES[4:])
    monkeypatch.setattr("nmt.training.validation.perplexity", lambda *_: next(said))
    tiny.train(tmp_path / "run", data, trainer__keep_checkpoints=3)
    assert step(tmp_path / "run", 9).is_dir()
    for path in (tmp_path / "run", run):
        made = average.of_run(path, 3, "last")
        modeldir.save(made, tmp_path / f"mean of {path.parent.name}")
    sums = {modeldir.weights_sha256(path) for path in tmp_path.glob("mean of *")}
    assert len(sums) == 1


@pytest.mark.parametrize("option", ["last", "best"])
def test_fewer_than_asked_for_are_refused(run: Path, option: str) -> None:
    """The best one was kept, but those between it and the newest are gone."""
    have = {"last": 3, "best": 4}[option]
    with pytest.raises(UserError, match=f"--{option} 5: it keeps only {have} such") as refused:
        average.of_run(run, 5, option)
    assert refused.value.code == Exit.DATA
    key = {"last": "keep_checkpoints", "best": "keep_best"}[option]
    assert f"trainer.{key}" in str(refused.value)


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
        average.of_models([run, other])
        return
    with pytest.raises(UserError, match=f"{other}: {told}") as refused:
        average.of_models([run, other])
    assert refused.value.code == Exit.DATA
    mixed = shutil.copytree(run, tmp_path / "mixed")  # the same within a run
    shutil.rmtree(step(mixed, 10))
    shutil.copytree(other, step(mixed, 10))
    with pytest.raises(UserError, match=told.partition(":")[0]):
        average.of_run(mixed, 2, "last")


def test_the_same_model_twice_is_refused(run: Path) -> None:
    with pytest.raises(UserError, match=r"has the weights of .*; give each model once"):
        average.of_models([run, step(run, 4)])


def test_a_damaged_checkpoint_is_refused_by_name(run: Path, tmp_path: Path) -> None:
    here = shutil.copytree(run, tmp_path / "run")
    (step(here, 8) / WEIGHTS).write_bytes(b"")
    with pytest.raises(UserError, match="step-00000008"):
        average.of_run(here, 3, "best")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["RUN"], 2, "one model has no mean; add --last K or --best K"),
        (["RUN", "RUN", "--last", "2"], 2, "--last and --best choose of one run; give one"),
        (["none", "--last", "2"], 66, "none: no run of nmt-train (it has no checkpoints)"),
        (["RUN", "none"], 66, "none: no such directory"),
        (["RUN", "--last", "9"], 65, "--last 9: it keeps only 3 such checkpoints; give fewer"),
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
