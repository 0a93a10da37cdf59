"""What a run takes over from the model that it starts from, and what it may say itself."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt.config.catalog import config_dir_override
from nmt.config.hydra_conf import parse
from nmt.config.settings import Settings, freeze
from nmt.errors import Exit, UserError
from nmt.modeldir import portable
from nmt.parent import compose_config, experiment_of
from nmt.system import manifest
from tests.composing import settings_of

SHAPE = ["model=small", "model.dim=24", "model.heads=3", "model.norm=post", "model.dropout=0.3"]
OTHERS = ["segmenter=unigram", "data.normalize=nfkc", "encoding=relative", "tau=7", "optim.lr=0.5"]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parent"
    return run_of(path, settings_of(*SHAPE, *OTHERS))


def child(parent: Path, *overrides: str) -> Settings:
    return experiment_of([f"trainer.init_from={parent}", *overrides]).settings


def test_segmenter_normalisation_model_and_encoding_are_the_parents(parent: Path) -> None:
    settings, started = settings_of(*SHAPE, *OTHERS), child(parent)
    for group in ("segmenter", "model", "encoding"):
        assert getattr(started, group) == getattr(settings, group)
    assert started.data.normalize == "nfkc"
    assert started.optim == settings_of().optim  # that is no part of the model


def run_of(path: Path, settings: Settings) -> Path:
    """A run that has a checkpoint, which knows no place of this machine."""
    (path / "checkpoints").mkdir(parents=True)
    (path / "config.json").write_bytes(manifest.dump(freeze(settings)))
    plain = manifest.dump(freeze(portable(settings)))
    manifest.write(path / "checkpoints" / "step-00000001", [("config.json", plain)])
    return path


FILES = ["data=files", "data.root=/corpus", "data.source_language=fr", "data.max_length=50",
         "data.test_source=/elsewhere/test.fr"]  # fmt: skip


@pytest.mark.slow
def test_the_text_is_that_of_the_parents_run(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", settings_of(*FILES, "data.join=3", "data.bpe_dropout=0.5"))
    for place in (run, run / "checkpoints" / "step-00000001"):
        data = child(place, "encoding=relative").data
        assert (data.train_source, data.test_source, data.target_language) == (
            "/corpus/train.fr",
            "/elsewhere/test.fr",
            "en",
        )
        assert (data.join, data.bpe_dropout, data.max_length) == (1, 0, 100), "a run's own"
    moved = child(run, "data.root=/moved", "data.dev_source=/d").data
    assert (moved.train_source, moved.dev_source) == ("/moved/train.fr", "/d")
    assert moved.test_source is None
    held = settings_of("data=files", "data.root=/corpus", "data.dev_lines=9")
    dev = ["data.dev_source=/d", "data.dev_target=/e"]
    started = child(run_of(tmp_path / "held", held), *dev).data
    assert (started.dev_source, started.dev_lines) == ("/d", None)
    assert child(run, "data=toy").data.kind == "toy"
    lengthened = experiment_of(["experiment=lengthen", f"parent={run}"]).settings.data
    assert (lengthened.join, lengthened.name, lengthened.source_language) == (2, "files", "fr")


def test_training_files_replace_the_corpora_of_the_parent(tmp_path: Path) -> None:
    corpora = ["data=files", "data.root=/c", "+data.corpora.a.weight=2", "+data.corpora.b.weight=1"]
    run = run_of(tmp_path / "run", settings_of(*corpora))
    kept, new = child(run).data, child(run, "data.train_source=x", "data.train_target=y").data
    assert list(kept.corpora) == ["a", "b"] and kept.dev_source == "/c/dev.de"
    assert (new.corpora, new.train_source, new.dev_source) == ({}, "x", "/c/dev.de")


@pytest.mark.parametrize("key", ["trainer.init_from", "experiment=lengthen parent"])
def test_a_parent_that_does_not_tell_its_text_wants_one(key: str, tmp_path: Path) -> None:
    settings = portable(settings_of(*FILES))
    manifest.write(tmp_path / "m", [("config.json", manifest.dump(freeze(settings)))])
    arguments = f"{key}={tmp_path}/m".split()
    with pytest.raises(UserError, match="name the text to train on, as in data=files") as error:
        experiment_of(arguments)
    assert error.value.code == Exit.USAGE
    assert experiment_of([*arguments, *FILES]).settings.data.name == "files"


@pytest.mark.slow
def test_the_model_and_its_encoding_may_be_said(parent: Path) -> None:
    started = child(parent, "encoding=rotary", "model.dropout=0.2", "model.decoder_layers=1")
    assert list(started.encoding) == ["rotary"]
    model = started.model
    assert (model.dropout, model.decoder_layers, model.dim) == (0.2, 1, 24)
    assert child(parent, "model=tiny").model == settings_of().model
    assert child(parent, "encoding=relative").encoding == settings_of("encoding=relative").encoding


@pytest.mark.slow
def test_what_a_run_or_an_experiment_names_is_not_the_parents(parent: Path, tmp_path: Path) -> None:
    started = child(parent, "run=R3", "scale=toy", "encoding.lstm.hidden=7")
    assert list(started.encoding) == ["lstm"] and started.encoding["lstm"]["hidden"] == 7
    assert started.model == settings_of(*SHAPE).model, "of the size that its weights have"
    corpus = child(parent, "run=R10", "scale=wmt19").data  # named by the scale
    assert corpus.source_language == "zh"
    texts = {"short": "  - override /encoding: universal\nmodel: {dropout: 0.2}\n",
             "shorter": "  - short\n  - override /optim: adam_inverse_sqrt\n"}  # fmt: skip
    (tmp_path / "experiment").mkdir()
    for name, text in texts.items():
        head = "# @package _global_\ndefaults:\n"
        (tmp_path / "experiment" / f"{name}.yaml").write_text(head + text)
        started = child(parent, f"experiment={name}", *config_dir_override(str(tmp_path)))
        assert list(started.encoding) == ["universal"]
        model = started.model
        assert (model.share_layers, model.dropout, model.dim) == (True, 0.2, 24)


def test_the_search_is_the_parents_but_for_what_is_typed_or_chosen(tmp_path: Path) -> None:
    """An imported model of Marian, say, whose search is none of nmt's defaults."""
    search = ["decode.beam_size=12", "decode.alpha=0", "decode.stop=shrinking"]
    search += ["decode.length_penalty=power", "decode.unknown=allow"]
    settings = settings_of(*FILES, *search)
    run = run_of(tmp_path / "parent", settings)
    named = ["experiment=lengthen", f"parent={run}", f"runs={tmp_path}", "name=child"]
    started = experiment_of(named)
    assert started.settings.decode == settings.decode
    assert child(run, "decode.beam_size=3").decode == replace(settings.decode, beam_size=3)
    greedy = child(run, "decode=greedy", "decode.alpha=0.5").decode
    assert greedy == replace(settings.decode, beam_size=1, alpha=0.5)
    run_of(started.run, started.settings)
    shutil.rmtree(run)
    assert experiment_of(named).settings == started.settings  # as its own config records it


def test_keys_of_the_parents_encoding_may_be_changed(parent: Path) -> None:
    for chosen in ([], ["encoding=relative"]):
        changed = child(parent, *chosen, "encoding.relative.where=decoder").encoding["relative"]
        assert changed["where"] == "decoder" and changed["tau"] == (16 if chosen else 7)
    for key, message in (("encoding.absolute.where", "absolute is not"), ("tau", "only beside")):
        with pytest.raises(UserError, match=f"^{key}.*: {message}"):
            child(parent, f"{key}=8")


@pytest.mark.parametrize("override", ["segmenter=bpe", "data.normalize=nfc"])
def test_text_cannot_be_cut_otherwise(override: str, parent: Path) -> None:
    with pytest.raises(UserError, match="text is cut as the parent cuts it; leave it out") as error:
        child(parent, override)
    assert str(error.value).startswith(override)


def test_a_parent_that_is_gone_is_missed_unless_the_run_has_begun(
    parent: Path, tmp_path: Path
) -> None:
    start = f"trainer.init_from={tmp_path}/gone"
    arguments = [start, f"runs={tmp_path}", "name=child"]
    with pytest.raises(UserError, match="gone: no such directory") as error:
        experiment_of(arguments)
    assert error.value.code == Exit.NO_INPUT
    own = child(parent, "model.dropout=0.2")
    run_of(tmp_path / "other", own)  # from another parent
    with pytest.raises(UserError, match="gone: no such directory"):
        experiment_of([start, f"runs={tmp_path}", "name=other"])
    own.trainer.init_from = f"{tmp_path}/gone"
    run_of(tmp_path / "child", own)
    for moved in (start, "trainer.init_from=x/gone"):
        assert experiment_of([moved, *arguments[1:]]).settings.model == own.model


@pytest.mark.slow
def test_a_run_on_files_is_resumed_by_its_name_without_its_parent(tmp_path: Path) -> None:
    gone = tmp_path / "p"
    run_of(gone, settings_of(*FILES, "encoding=relative"))
    start = [f"trainer.init_from={gone}", f"runs={tmp_path / 'runs'}"]
    commands = [
        [*start, "data.dev_lines=500", "name=held"],
        [*start, "data=files", "data.root=/other", "name=other"],
        [*start, "encoding=rotary", "seed=3", "name=rotary${seed}"],
    ]
    begun = [experiment_of(command) for command in commands]
    for each in begun:
        run_of(each.run, each.settings)
    shutil.rmtree(gone)
    for command, each in zip(commands, begun, strict=True):
        again = experiment_of(command)
        assert (again.run, again.settings) == (each.run, each.settings)
    for unnamed in (start, [*start, "name=${tau}"]):
        with pytest.raises(UserError, match="the name= of that run") as error:
            experiment_of(unnamed)
        assert error.value.code == Exit.NO_INPUT


def test_the_config_that_is_shown_is_that_of_the_run(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", settings_of(*FILES, *SHAPE, "encoding=relative"))
    moved = [f"trainer.init_from={run}", "data.root=/moved", "data.dev_lines=9"]
    cfg: Any = OmegaConf.to_container(
        OmegaConf.create(OmegaConf.to_yaml(compose_config(parse(moved)), resolve=False)),
        resolve=True,
    )
    for group, values in freeze(experiment_of(moved).settings).items():
        assert cfg[group] == values
