"""Every key of every config does something: each is flipped, and a change must be seen.

Those of encodings are flipped in encodings/test_every_key.py, and those of the search, each for
what it does, in tests/decode/.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from nmt.cli.train import command as train
from nmt.config import check as schema
from nmt.config.catalog import options_of
from nmt.config.compose import Experiment, experiment_of
from nmt.config.data import TOY_KEYS
from nmt.config.settings import GROUPS, Settings, freeze
from nmt.corpus.prepare import Prepared, prepare
from nmt.evaluation.testsets import corpus_test_files
from nmt.toy import write_text
from nmt.training.directory import open_run
from nmt.training.run import fit
from tests import composing
from tests.pages import ROOT
from tests.training import tiny

SMALL = [
    *("model.dim=8", "model.feedforward_dim=8", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "trainer.threads=1", "trainer.device=cpu", "trainer.max_steps=3"),
    *("trainer.batch_tokens=40", "trainer.log_every=1", "trainer.checkpoints_per_epoch=2"),
    *("optim.lr=0.05", "data.workers=1", "trainer.tensorboard=false"),
]
TOY = ["data.train_pairs=40", "data.dev_pairs=6", "data.test_pairs=6"]
CORPORA: dict[str, Prepared] = {}  # by settings
SOURCE = ["ein Haus", "ﬁn " * 3, "kein Hund da", "e\u0301ben", "ja ja ja ja ja ja ja ja ja", "x y"]


def corpus(root: Path) -> None:
    """Text with what the keys of data are about: ligatures, long lines, bad UTF-8, apostrophes."""
    for part, times in (("train", 6), ("dev", 1), ("other", 3)):
        lines = [f"{s} don't l'eau {i}".encode() for i in range(times) for s in SOURCE]
        if part == "other":
            lines[1] = b"\xff broken"
        text = b"\n".join(lines) + b"\n"
        (root / f"{part}.de").write_bytes(text)
        (root / f"{part}.en").write_bytes(text.upper() if part != "other" else text)
        (root / f"{part}.fr").write_bytes(text)
    (root / "patterns").write_text("[0-9]+\n")


def files_of(root: Path, merges: bool = True) -> list[str]:
    return ["data=files", f"data.root={root}", *(["segmenter.merges=10"] if merges else [])]


def later(words: list[str]) -> list[str]:
    """Of several words for one key, the last."""
    return list({word.partition("=")[0]: word for word in words}.values())


def observe(words: list[str], place: Path, where: str) -> dict[str, Any]:
    """All that a training run leaves behind.

    Of nmt-train only what reads a key: the command itself would compose thrice.
    """
    shutil.rmtree(place / where, ignore_errors=True)
    settings, name = understood(later(words))
    run = place / where / name
    with open_run(run, settings) as opened:
        fit(prepared(settings), opened)
    seen: dict[str, Any] = {}
    seen["files"] = sorted(
        str(p.relative_to(run)) for p in run.rglob("*") if "tfevents" not in str(p)
    )
    seen["tensorboard"] = any("tfevents" in str(p) for p in run.rglob("*"))
    metrics = [json.loads(x) for x in (run / "metrics.jsonl").read_text().strip().split("\n")]
    timed = ("seconds", "tokens_per_second", "memory_bytes")
    seen["metrics"] = [{k: v for k, v in m.items() if k not in timed} for m in metrics]
    newest = sorted((run / "checkpoints").iterdir())[-1]
    seen["weights"] = tiny.digest(newest / "model.safetensors")
    seen["sides"] = [tiny.digest(newest / f"{side}.json") for side in ("source", "target")]
    return seen


def understood(words: list[str]) -> tuple[Settings, str]:
    """What nmt-train makes of the words, and the name of the run, with less of Hydra.

    Values that no other value or name is made of are put in afterwards, and checked as ever.
    """
    groups = ("segmenter", "model", "optim", "trainer")
    late = [w for w in words if w.split(".")[0] in groups and not w.startswith("data.name=")]
    settings, run, *_ = composed(tuple(w for w in words if w not in late))
    changed: Any = OmegaConf.to_container(OmegaConf.from_dotlist(late))
    for group, values in changed.items():
        plain = {**vars(getattr(settings, group)), **values}
        settings = replace(settings, **{group: schema.read(GROUPS[group], plain, group)})
    return settings, str(run.relative_to("runs"))


@cache
def composed(words: tuple[str, ...]) -> Experiment:
    return experiment_of([*words, "runs=runs"])


def prepared(settings: Settings) -> Prepared:
    """The corpus of a run: one preparation for all runs of the same data."""
    key = repr((settings.data, settings.segmenter))
    if key not in CORPORA:
        CORPORA[key] = prepare(settings.data, settings.segmenter)
    return CORPORA[key]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("keys")
    corpus(where)
    return where


@pytest.fixture(scope="module")
def base(place: Path) -> Iterator[Callable[[list[str]], dict[str, Any]]]:
    known: dict[str, dict[str, Any]] = {}

    def of(words: list[str]) -> dict[str, Any]:
        key = " ".join(words)
        if key not in known:
            known[key] = observe(words, place, f"base{len(known)}")
        return known[key]

    yield of
    torch.set_num_threads(1)


FILES = "FILES"  # stands for the words of the crafted corpus
PLATEAU = ["optim.lr=0.3", "trainer.max_steps=6", "trainer.checkpoints_per_epoch=100"]
TRAINING: list[tuple[str, list[str], str]] = [  # key=value, base words, what must change
    ("seed=2", [], "weights"),
    ("data.max_length=12", [], "weights"),
    ("data.source_language=fr", [FILES], "sides"),
    ("data.normalize=nfkc", [FILES], "sides"),
    ("data.max_line_bytes=30", [FILES], "weights"),
    ("data.join_share=0.1", ["data.join=2"], "weights"),
    ("data.join_length=9", ["data.join=2"], "weights"),
    ("data.subword_nbest=3", [FILES, "segmenter=unigram", "data.subword_alpha=0.1"], "weights"),
    ("segmenter.min_frequency=30", [FILES, "segmenter.merges=100"], "sides"),
    ("segmenter.character_coverage=0.98", [FILES, "segmenter=unigram"], "sides"),
    ("segmenter.training_lines=9", [FILES, "segmenter=unigram"], "sides"),
    ("model.activation=swish", [], "weights"),
    ("model.norm_epsilon=0.1", [], "weights"),
    ("model.drop_residual=[1]", [], "weights"),
    ("model.source_eos=false", [], "weights"),
    ("model.target_bos=false", [], "weights"),
    ("model.dropout=0.5", [], "weights"),
    ("model.attention_dropout=0.5", [], "weights"),
    ("model.feedforward_dropout=0.5", [], "weights"),
    ("optim.beta1=0.5", [], "weights"),
    ("optim.beta2=0.5", [], "weights"),
    ("optim.weight_decay=0.5", [], "weights"),
    ("optim.clip=0.01", ["optim.eps=0.1"], "weights"),
    ("optim.label_smoothing=0.4", [], "weights"),
    ("optim.decay=0.1", [*PLATEAU, "optim.patience=1"], "metrics"),
    ("optim.warmup=2", ["optim=adam_inverse_sqrt"], "weights"),
    ("trainer.batch_count=source", [], "weights"),
    ("trainer.accumulate=2", [], "weights"),
    ("trainer.checkpoint_every=1", ["trainer.max_steps=5"], "files"),
    ("trainer.log_every=2", [], "metrics"),
    ("trainer.tensorboard=true", [], "tensorboard"),
]


def test_no_key_is_forgotten() -> None:
    """Each is read somewhere outside of the config."""
    package = ROOT / "nmt"
    files = [path for path in package.rglob("*.py") if path.parent != package / "config"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    keys = {name for declared in GROUPS.values() for name in schema.keys_of(declared)}
    assert {name for name in keys if not re.search(rf"[.\"']{name}\b", code)} == set()


@pytest.mark.slow
@pytest.mark.parametrize("line, words, changes", TRAINING, ids=[x[0] for x in TRAINING])
def test_flipping_a_key_shows(
    line: str, words: list[str], changes: str, place: Path, base: Callable[..., dict[str, Any]]
) -> None:
    def filled(merges: bool) -> list[str]:
        out = [word.replace("ROOT", str(place)) for word in words if word != FILES]
        text = files_of(place, merges) if FILES in words else TOY
        return [*SMALL, f"data.cache={place / 'cache'}", *text, *out]

    unigram = "segmenter=unigram"  # which has no merges
    before = base(filled(merges=unigram not in words))
    flipped = [*filled(merges=unigram not in (line, *words)), line.replace("ROOT", str(place))]
    after = observe(flipped, place, "flipped")
    assert before.get(changes) != after[changes]


RECIPE_FLIPPED = {
    "train_pairs": 50,
    "train_shortest": 20,
    "train_longest": 10,
    "dev_pairs": 12,
    "test_pairs": 45,
    "test_shortest": 40,
    "test_longest": 20,
    "corpus_seed": 2,
}


def test_flipping_a_key_of_the_embedded_corpus_shows(tmp_path: Path) -> None:
    small = understood(TOY)[0].data

    def draw(**change: Any) -> dict[str, str]:
        place = tmp_path / "-".join(["toy", *change])
        place.mkdir()
        write_text(replace(small, **change), place)
        return {name: digest for name, digest in tiny.tree(place).items() if name.endswith(".de")}

    plain = draw()
    assert RECIPE_FLIPPED.keys() == {*TOY_KEYS}
    for key, value in RECIPE_FLIPPED.items():
        parts = {name for name, digest in draw(**{key: value}).items() if digest != plain[name]}
        of_parts = {f"{part}.de" for part in ("train", "dev", "test") if key.startswith(part)}
        assert parts >= (of_parts or {"train.de", "dev.de", "test.de"})


def test_keys_of_the_surroundings(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    words = [*SMALL, *files_of(place), f"data.cache={tmp_path / 'there'}", f"runs={tmp_path}"]
    trained = later([*words, "data.workers=2", "data.test_source=a.de", "data.test_target=b.en"])
    train(trained)
    assert list((tmp_path / "there").glob("files-*"))
    assert "2 processes" in caplog.text
    assert "nmt-translate" in caplog.text and "a.de" in caplog.text
    assert corpus_test_files(experiment_of(trained).settings) == ("a.de", "b.en")
    words = [*files_of(place), f"data.test_source={tmp_path}/a.de", "data.test_target=b.en"]
    (tmp_path / "a.de.gz").touch()  # only compressed, as text to train on may be
    assert corpus_test_files(experiment_of(words).settings) == (f"{tmp_path}/a.de.gz", "b.en")


OPTIONS = {group: options_of(group) for group in GROUPS}


@pytest.mark.parametrize("number", range(max(map(len, OPTIONS.values()))))
def test_files_give_each_key_a_value(number: int) -> None:
    """Of each group one option at a time: composing them together proves the same, sooner."""
    chosen = {group: options[number % len(options)] for group, options in OPTIONS.items()}
    words = [f"{group}={option}" for group, option in chosen.items()]
    named = {
        "files": ["data.root=x"],
        "spm": ["segmenter.source_model=x"],
        "codes": ["segmenter.codes=x", "segmenter.source_vocabulary=x"],
    }  # what has no default
    words += [word for option in chosen.values() for word in named.get(option, [])]
    plain = freeze(composing.settings_of(*words))
    for group in GROUPS:
        assert all(value != "???" for value in plain[group].values()), words
        assert len(plain[group]) >= 4, words
