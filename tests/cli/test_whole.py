"""The whole job through the real commands: prepare, train, translate, evaluate."""

import re
import sys
from pathlib import Path

import pytest

from nmt.cli.evaluate import main as evaluate
from nmt.cli.prepare import main as prepare
from nmt.cli.train import main as train
from nmt.cli.translate import main as translate
from tests.in_process import start_by
from tests.training import tiny

TINY = [
    *("model.dim=32", "model.feedforward_dim=64", "model.encoder_layers=1", "trainer.threads=1"),
    *("model.decoder_layers=1", "trainer.device=cpu", "trainer.tensorboard=false"),
    *("model.dropout=0", "optim.label_smoothing=0", "trainer.batch_tokens=100"),
]
TOY = ["data.train_pairs=24", "data.train_longest=9", "data.dev_pairs=20", "data.test_pairs=20"]
# every character of the newline table, each in the middle of a line
ODD = "\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029\x00\xa0\u200b\ufeff\u200d\u202e\xad\u3000\x93\t"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path, Path]:
    """Words and directory of a run that knows its 24 sentences by heart; the corpus."""
    root = tmp_path_factory.mktemp("whole")
    words = [*TINY, *TOY, f"data.cache={root / 'cache'}", f"runs={root}", "name=a b"]
    words += ["encoding=relative", "tau=4", "optim.lr=0.01"]
    words += ["trainer.max_epochs=30", "trainer.checkpoints_per_epoch=1"]
    assert train(words) == 0
    (corpus,) = (root / "cache" / "toy").glob("de-en*[0-9]")
    return words, root / "a b", corpus


def test_sentences_of_the_training_text_are_translated(
    learnt: tuple[list[str], Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run, corpus = learnt
    last = sorted((run / "checkpoints").iterdir())[-1]  # the best on dev came long before
    source, target = corpus / "train.de", corpus / "train.en"
    assert translate([str(last), str(source), "--threads", "1"]) == 0
    out = capsys.readouterr().out.split("\n")
    wanted = target.read_text(encoding="utf-8").split("\n")
    assert len(out) == len(wanted)
    assert sum(a == b for a, b in zip(out, wanted, strict=True)) > 20


def test_the_same_command_again_changes_nothing(learnt: tuple[list[str], Path, Path]) -> None:
    words, run, _ = learnt
    before = tiny.tree(run)
    assert train(words) == 0
    assert tiny.tree(run) == before


def test_every_separator_survives_the_whole_way(
    learnt: tuple[list[str], Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """N lines in, N lines out, through preparation, translation and evaluation."""
    _, run, _ = learnt
    lines = [f"der Mann{c}schläft." for c in ODD] + ["", " ", ODD]
    text = "\n".join(lines).encode() + b"\n"
    for name in ("train.de", "train.en", "dev.de", "dev.en"):
        (tmp_path / name).write_bytes(text)
    root = [f"data.root={tmp_path}", f"data.cache={tmp_path / 'cache'}", "segmenter.merges=5"]
    assert prepare(["data=files", *root]) == 0
    assert re.search(rf"^total +{len(lines)} ", capsys.readouterr().out, re.M)
    out = tmp_path / "out.txt"
    assert translate([str(run), str(tmp_path / "train.de"), "-o", str(out)]) == 0
    translated = out.read_bytes()
    assert translated.count(b"\n") == len(lines) and translated.endswith(b"\n")
    assert translated.split(b"\n")[len(ODD)] == b""
    files = ["--source", str(tmp_path / "train.de"), "--reference", str(tmp_path / "train.en")]
    assert evaluate([str(out), *files, "--samples", "40"]) == 0
    assert f"{len(lines)} pairs" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demo_compares_by_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two commands of `make demo`."""
    monkeypatch.setattr(sys, "argv", ["nmt-train"])
    start_by(monkeypatch)
    words = [*TINY, *TOY, f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}"]
    words += ["trainer.max_steps=3", "decode.beam_size=1", "data.test_longest=80"]
    words += ["decode.max_length_ratio=0.5", "decode.max_length_offset=2"]  # scored in no time
    assert train(["-m", "experiment=demo", "encoding=absolute,relative", *words]) == 0
    capsys.readouterr()
    runs = [str(tmp_path / "toy" / f"{name}-seed1") for name in ("absolute", "relative")]
    plot = tmp_path / "comparison.png"
    assert evaluate([*runs, "--bounds", "25,50,75", "--samples", "40", "-o", str(plot)]) == 0
    table = capsys.readouterr().out
    assert "absolute" in table and "relative" in table and "51-75" in table
    assert plot.stat().st_size > 10_000
