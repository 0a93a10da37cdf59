"""What a run takes over from the model that it starts from, and what it may say itself."""

from pathlib import Path

import pytest

from nmt import manifest
from nmt.config import Settings, freeze
from nmt.errors import Exit, UserError
from nmt.overrides.compose import experiment_of

SHAPE = ["model=small", "model.dim=24", "model.heads=3", "model.norm=post", "model.dropout=0.3"]
OTHERS = ["segmenter=unigram", "data.normalize=nfkc", "encoding=relative", "tau=7", "optim.lr=0.5"]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parent"
    settings = experiment_of([*SHAPE, *OTHERS]).settings
    manifest.write(path, [("config.json", manifest.dump(freeze(settings)))])
    return path


def child(parent: Path, *overrides: str) -> Settings:
    return experiment_of([f"trainer.init_from={parent}", *overrides]).settings


def test_segmenter_normalisation_model_and_encoding_are_the_parents(parent: Path) -> None:
    theirs, ours = experiment_of([*SHAPE, *OTHERS]).settings, child(parent)
    assert (ours.segmenter, ours.model, ours.encoding) == (
        theirs.segmenter,
        theirs.model,
        theirs.encoding,
    )
    assert ours.data.normalize == "nfkc"
    assert ours.optim == experiment_of([]).settings.optim  # that is no part of the model


def test_the_model_and_its_encoding_may_be_said(parent: Path) -> None:
    ours = child(parent, "encoding=rotary", "model.dropout=0.2", "model.decoder_layers=1")
    assert list(ours.encoding) == ["rotary"]
    assert (ours.model.dropout, ours.model.decoder_layers, ours.model.dim) == (0.2, 1, 24)
    assert child(parent, "model=tiny").model == experiment_of([]).settings.model
    kept = child(parent, "encoding=relative")
    assert kept.encoding == experiment_of(["encoding=relative"]).settings.encoding


def test_what_an_encoding_asks_of_the_model_stays(parent: Path) -> None:
    assert child(parent, "encoding=universal").model.share_layers
    ours = child(parent, "encoding=complex_order").model
    assert (ours.feedforward, ours.dim) == ("complex", 24)


@pytest.mark.parametrize(
    "override", ["segmenter=bpe", "segmenter.tokenizer=none", "data.normalize=nfc"]
)
def test_text_cannot_be_cut_otherwise(override: str, parent: Path) -> None:
    with pytest.raises(UserError, match="text is cut as the parent cuts it; leave it out") as error:
        child(parent, override)
    assert str(error.value).startswith(override)


def test_the_run_is_named_after_the_encoding_it_has(parent: Path) -> None:
    start = f"trainer.init_from={parent}"
    assert experiment_of([start]).run == Path("runs/toy/relative-seed1")
    assert experiment_of([start, "encoding=rotary"]).run == Path("runs/toy/rotary-seed1")


def test_a_parent_that_is_gone_is_missed_unless_the_run_has_begun(
    parent: Path, tmp_path: Path
) -> None:
    arguments = [f"trainer.init_from={tmp_path}/gone", f"runs={tmp_path}", "name=child"]
    with pytest.raises(UserError, match="gone: no such directory") as error:
        experiment_of(arguments)
    assert error.value.code == Exit.NO_INPUT
    (tmp_path / "child").mkdir()
    own = manifest.dump(freeze(child(parent, "model.dropout=0.2")))
    (tmp_path / "child" / "config.json").write_bytes(own)
    assert experiment_of(arguments).settings.model == child(parent, "model.dropout=0.2").model


def test_a_directory_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a model directory") as error:
        child(tmp_path)
    assert error.value.code == Exit.DATA
