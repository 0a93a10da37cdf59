"""A model that the engine of trainer.target cannot hold is refused before any text is prepared."""

from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.errors import Exit
from tests.conftest import TINY

WORDS = [
    *("data.train_pairs=200", "data.dev_pairs=20", "data.test_pairs=9", "trainer.max_steps=1"),
    *("trainer.device=cpu", "name=a"),
]
MARIAN = ["encoding=absolute", "encoding.absolute.layout=halves", "model.norm=post"]


@pytest.mark.parametrize(
    ("target", "words", "told"),
    [
        ("ctranslate2", ["encoding=lstm"], "encoding.lstm: cannot be exported"),
        ("args", [], "no engine of nmt-export; choose among ctranslate2, marian"),
        ("argos", [], "segmenter.kind=bpe: cannot be exported to Argos"),
        ("marian", ["encoding=rotary"], "model.norm=post segmenter=unigram"),
        ("marian", ["encoding=rotary", "model.norm=post"], "train with encoding=absolute"),
        ("marian", MARIAN, "segmenter.kind=bpe: cannot be exported to"),
    ],
)
def test_what_an_engine_cannot_hold_is_refused_before_text_is_prepared(
    target: str,
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for several in ([], ["-m"]):
        command = [*several, *TINY, *WORDS, *words, f"trainer.target={target}"]
        assert train(command) == Exit.USAGE
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith(f"nmt: trainer.target={target}: ") and told in line
        assert not [*tmp_path.iterdir()]


def test_what_an_engine_can_hold_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    larger = ["model.dim=32", "model.feedforward_dim=24", "model.heads=4"]  # than what is tried
    words = [*larger, *WORDS, "encoding=[relative,t5]", "trainer.target=ctranslate2"]
    assert train(words) == Exit.OK
