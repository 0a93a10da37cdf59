"""An encoding of an installed package, its YAML in a folder of one's own, through every command."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.cli.encodings import main as encodings
from nmt.cli.evaluate import main as evaluate
from nmt.cli.train import main as train
from tests.plug_ins import example, install

TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "trainer.threads=1"),
    *("model.encoder_layers=1", "model.decoder_layers=1", "trainer.batch_tokens=100"),
    *("data.train_pairs=40", "data.train_longest=9", "data.dev_pairs=10", "data.test_pairs=5"),
    *("trainer.max_steps=2", "trainer.log_every=1", "trainer.device=cpu", "segmenter.merges=50"),
    *("decode.max_length_ratio=0.5", "decode.max_length_offset=2"),
]
NAME = "theirs"
MODULE, YAML = (text.replace("mine", NAME) for text in example())
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder with its YAML; the package is installed beside it."""
    site = tmp_path / "site"
    install(site, "mine-encodings", NAME, "mine_encodings:Mine", MODULE)
    monkeypatch.syspath_prepend(site)
    (tmp_path / "own" / "encoding").mkdir(parents=True)
    (tmp_path / "own" / "encoding" / f"{NAME}.yaml").write_text(YAML, encoding="utf-8")
    yield tmp_path / "own"
    sys.modules.pop("mine_encodings", None)


def test_has_a_line_and_a_card(folder: Path, capsys: Capture) -> None:
    beside = ["--config-dir", str(folder)]
    assert encodings(beside) == 0
    shown = capsys.readouterr().out
    assert f"\n  {NAME}  " in shown.partition("\ndistances, as a bias or a factor\n")[2]
    assert encodings([NAME, *beside, f"encoding.{NAME}.strength=0.25"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{NAME}\n  One line that says what it does\n")
    assert "Subtracts a learned multiple" in shown and "cached decoding     exact" in shown
    assert f"encoding.{NAME}.strength" in shown and "a comment makes it part of --help" in shown
    assert encodings(["theirz", *beside]) == 2
    assert capsys.readouterr().err == "nmt: encoding=theirz: no such option; did you mean theirs?\n"
    assert train([f"encoding={NAME}"]) == 2  # without its options
    assert capsys.readouterr().err.endswith(
        "is installed: name the directory of its options by --config-dir\n"
    )


def test_is_shown_at_work(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Its model is evaluated by processes of their own, which find the package, too."""
    paths = [str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    words = [*TINY, f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}", f"encoding={NAME}"]
    assert train([*words, "--config-dir", str(folder), "name=run"]) == 0
    assert evaluate([str(tmp_path / "run"), "--samples", "40", "--device", "cpu"]) == 0
    assert "translating" in capsys.readouterr().err


def test_is_in_the_help(folder: Path, capsys: Capture) -> None:
    beside = ["--config-dir", str(folder), "--help"]
    assert train([*beside, f"encoding={NAME}"]) == 0
    alone = capsys.readouterr().out
    assert train([*beside, "all"]) == 0
    shown = capsys.readouterr().out
    assert f"encoding.{NAME}.strength" in alone and "  encoding.relative.key" not in alone
    assert f"encoding.{NAME}.strength" in shown and "One line that says what it does" in shown
