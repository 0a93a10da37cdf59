"""A model that the engine of trainer.target cannot hold is refused before the first update."""

from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.errors import Exit
from tests.conftest import TINY

WORDS = [
    *("data.train_pairs=200", "data.dev_pairs=20", "data.test_pairs=9", "trainer.max_steps=1"),
    *("trainer.device=cpu", "trainer.target=ctranslate2", "name=a"),
]


def test_what_an_engine_cannot_hold_is_refused_before_the_first_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train([*TINY, *WORDS, "encoding=lstm"]) == Exit.USAGE
    err = capfd.readouterr().err
    assert "trainer.target=ctranslate2: encoding.lstm" in err.splitlines()[-1]
    assert not [*tmp_path.glob("runs/*/checkpoints/*")] and "step 1" not in err
    assert train([*TINY, *WORDS, "encoding=relative"]) == Exit.OK
