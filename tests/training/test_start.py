"""A model that starts from another one: what is copied, what is new, and what step 0 computes."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt import build, modeldir
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.model.transformer import Transformer
from nmt.system import manifest
from nmt.training.start import Graft, difference, graft
from tests.training import tiny

PARENT: dict[str, Any] = {"absolute": {}}


def model_of(data: Prepared, seed: int, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    size = len(data.source.vocabulary)
    return build.transformer(tiny.settings(**changes), size, size)


def parent(path: Path, data: Prepared, **changes: Any) -> Path:
    model = model_of(data, 7, **changes)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    settings = tiny.settings(**changes)
    facts = {"step": 1, "longest_source": 9}
    manifest.write(path, modeldir.parts(settings, model, data.source, data.target, facts))
    return path


def started(path: Path, data: Prepared, **changes: Any) -> tuple[Transformer, Graft]:
    model = model_of(data, 8, **changes)
    return model, graft(model, tiny.settings(**changes), path)


def test_relative_tables_on_top_of_absolute_start_as_absolute(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = parent(tmp_path / "parent", data)
    with caplog.at_level(logging.INFO, "nmt"):
        model, report = started(path, data, encoding={**PARENT, "relative": {"tau": 2}})
    assert report.difference < 1e-6
    assert report.zero_initialised == [
        f"{site}.relative.{kind}_table"
        for site in ("encoder", "decoder")
        for kind in ("key", "value")
    ]
    assert not report.new and not report.dropped
    assert "step 0 computes as the parent" in caplog.text
    assert "optim.lr=0.01" in caplog.text and "was trained at 0.01" in caplog.text
    parent_model = modeldir.load(path).model
    assert torch.equal(model.output.weight, parent_model.output.weight)


def test_without_the_parents_encoding_step_0_differs_and_says_so(
    data: Prepared, tmp_path: Path
) -> None:
    path = parent(tmp_path / "parent", data)
    _, report = started(path, data, encoding={"relative": {"tau": 2}})
    assert report.difference > 1e-3
    assert "the change must be learned first (largest difference" in str(report)
    assert (
        len(report.zero_initialised) == 4 and not report.dropped
    )  # sinusoids have no tensor to drop


def test_tables_of_the_parent_are_kept_or_dropped(data: Prepared, tmp_path: Path) -> None:
    path = parent(tmp_path / "parent", data, encoding={"relative": {"tau": 2}})
    model, report = started(path, data, encoding={"relative": {"tau": 2}, "alibi": {}})
    assert "encoder.relative.key_table" in report.loaded
    parent_encoding = next(iter(modeldir.load(path).model.encoder_encodings))
    child_encoding = next(iter(model.encoder_encodings))
    for a, b in zip(parent_encoding.parameters(), child_encoding.parameters(), strict=True):
        assert torch.equal(a, b)
    _, report = started(path, data, encoding={"absolute": {}})
    assert [n.split(".")[1] for n in report.dropped] == ["relative"] * 4


@pytest.mark.parametrize(
    "encoding",
    [
        {"fope": {"original": 16}},
        {"learned": {"size": 32, "trainable": False}},
        {"complex_order": {"where": ["encoder", "decoder", "cross"], "learn": False}},
    ],
    ids=lambda encoding: next(iter(encoding)),
)
def test_random_numbers_that_are_not_trained_are_the_parents(
    encoding: dict[str, Any], data: Prepared, tmp_path: Path
) -> None:
    path = parent(tmp_path / "parent", data, encoding=encoding)
    _, report = started(path, data, encoding=encoding)
    assert report.difference == 0 and not report.new and not report.dropped


def test_a_tied_matrix_is_copied_to_each_that_the_child_has_of_its_own(
    data: Prepared, tmp_path: Path
) -> None:
    model, report = started(parent(tmp_path / "parent", data), data, model__tie="none")
    assert not report.new and not report.dropped and report.difference == 0
    assert model.output.weight is not model.target_embedding.weight


def test_training_starts_from_the_parent_and_resumes_without_it(
    data: Prepared, tmp_path: Path
) -> None:
    path = parent(tmp_path / "parent", data)
    run = tmp_path / "run"
    changes: dict[str, Any] = {"trainer__init_from": str(path), "trainer__max_epochs": None}
    changes["optim__lr"] = 0.0
    tiny.train(run, data, **changes, trainer__max_steps=1)
    trained = modeldir.load(run).model
    assert difference(trained, modeldir.load(path).model) == 0
    for file in path.iterdir():
        file.unlink()
    assert tiny.train(run, data, **changes, trainer__max_steps=2).step == 2
    assert difference(modeldir.load(run).model, trained) == 0


def test_a_parent_may_train_on(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Though its weights of then are gone. Another run is still another start."""
    path, other, child = (tmp_path / name for name in ("parent", "other", "child"))
    tiny.train(path, data, trainer__max_steps=4)
    tiny.train(other, data, trainer__max_steps=6, seed=4)
    changes = {"optim__lr": 0.001, "trainer__init_from": str(path)}
    tiny.train(child, data, **changes, trainer__max_steps=1)
    tiny.train(path, data)
    assert (path / "best").read_text().strip() != "step-00000004"
    assert tiny.train(child, data, **changes, trainer__max_steps=2).step == 2
    assert "parent: has other weights than at the start" in caplog.text
    assert tiny.train(child, data, **changes, trainer__max_steps=3).step == 3
    changes["trainer__init_from"] = str(other)
    with pytest.raises(UserError, match="started from other weights"):
        tiny.train(child, data, **changes, trainer__max_steps=4)


def test_a_run_does_not_start_from_itself(data: Prepared, whole: Path) -> None:
    for parent in (whole, tiny.newest(whole)):
        with pytest.raises(UserError, match=f"^trainer.init_from={parent}: is .* choose another"):
            tiny.reopen(whole, trainer__init_from=str(parent))


def test_a_run_is_not_taken_for_one_from_another_start(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = parent(tmp_path / "one", data)
    two = parent(tmp_path / "two", data, model__feedforward_dim=24)
    run = tmp_path / "run"
    changes: dict[str, Any] = {"trainer__max_epochs": None, "trainer__max_steps": 1}
    tiny.train(run, data, **changes, trainer__init_from=str(one))
    moved = one.rename(tmp_path / "moved")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert tiny.train(run, data, **changes, trainer__init_from=str(moved)).already_finished
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert tiny.train(run, data, **changes, trainer__init_from=str(one)).already_finished
    assert "one: cannot be read any more" in caplog.text
    for steps in (1, 2):
        changes["trainer__max_steps"] = steps
        with pytest.raises(UserError, match="started from other weights than those of") as error:
            tiny.train(run, data, **changes, trainer__init_from=str(two))
        assert error.value.code == Exit.DATA
        with pytest.raises(UserError, match=r"trainer\.init_from: .* -> null") as error:
            tiny.train(run, data, **changes)
        assert error.value.code == Exit.USAGE
    assert tiny.train(run, data, **changes, trainer__init_from=str(moved)).step == 2
