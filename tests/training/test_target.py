"""A model that the engine of trainer.target cannot hold is refused before the first update."""

from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.errors import Exit
from tests.conftest import TINY

TOY = [
    "data.train_pairs=200",
    "data.dev_pairs=20",
    "data.test_pairs=9",
    "trainer.max_steps=1",
    "trainer.device=cpu",
    "name=a",
]
UNIGRAM = ["segmenter=unigram", "segmenter.vocabulary_size=60"]


@pytest.mark.parametrize(
    ("target", "words", "key"),
    [
        ("ctranslate2", ["encoding=lstm"], "encoding.lstm"),
        ("marian", ["encoding=absolute", "model.norm=pre", *UNIGRAM], "model.norm=pre"),
    ],
)
def test_what_an_engine_cannot_hold_is_refused_before_the_first_update(
    target: str,
    words: list[str],
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train([*TINY, *TOY, *words, f"trainer.target={target}"]) == Exit.USAGE
    err = capfd.readouterr().err
    assert f"trainer.target={target}: {key}" in err.splitlines()[-1]
    assert not [*tmp_path.glob("runs/*/checkpoints/*")] and "step 1" not in err


def test_what_an_engine_can_hold_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["encoding=relative", "trainer.target=ctranslate2"]
    assert train([*TINY, *TOY, *words]) == Exit.OK
