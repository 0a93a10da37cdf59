"""A run that begins with the weights of another one, on text of its own."""

import shutil
from pathlib import Path

import pytest
import torch

from nmt import modeldir
from nmt.cli.prepare import main as prepare
from nmt.cli.train import main as train

TINY = [
    *("model.dim=16", "model.feedforward_dim=16", "model.heads=2", "model.encoder_layers=1"),
    *("model.decoder_layers=1", "trainer.device=cpu", "trainer.threads=1", "trainer.max_steps=2"),
    *("trainer.batch_tokens=60", "trainer.tensorboard=false"),
]
FILES = ["data=files", "segmenter.merges=5", "segmenter.tokenizer=none", *TINY]


def write(root: Path, word: str) -> Path:
    """A corpus whose every line holds this word."""
    root.mkdir()
    for part in ("train", "dev", "test"):
        for language in ("de", "en"):
            lines = [f"{word} {number}\n" for number in range(9)]
            (root / f"{part}.{language}").write_text("".join(lines), encoding="utf-8")
    return root


def test_training_goes_on_from_a_parent_on_other_text_with_its_pieces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = write(tmp_path / "one", "haus"), write(tmp_path / "two", "sauhaus katze")
    words = [f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}"]
    parent = [*FILES, *words, f"data.root={one}", "encoding=relative", "tau=3", "name=parent"]
    assert train([*parent, "data.normalize=nfkc"]) == 0
    child = [
        "data=files",
        *words,
        f"data.root={two}",
        f"trainer.init_from={tmp_path / 'parent'}",
        "name=child",
    ]
    child += [argument for argument in TINY if argument.startswith("trainer.")]
    capsys.readouterr()
    assert train(child) == 0
    assert "step 0 computes as the parent" in (err := capsys.readouterr().err)
    assert "unknown pieces: source 0.0 %" not in err, "haus has not all letters of katze"
    parent_model, child_model = (
        modeldir.load(tmp_path / "parent"),
        modeldir.load(tmp_path / "child"),
    )
    assert child_model.source.to_json() == parent_model.source.to_json()
    assert child_model.settings.segmenter == parent_model.settings.segmenter
    assert child_model.settings.encoding == {"relative": parent_model.settings.encoding["relative"]}
    assert child_model.settings.data.normalize == "nfkc"
    assert not any(
        map(torch.equal, child_model.model.parameters(), parent_model.model.parameters())
    )
    shutil.rmtree(tmp_path / "parent")
    shutil.rmtree(tmp_path / "cache")
    longer = [argument.replace("max_steps=2", "max_steps=3") for argument in child]
    assert train(longer) == 0
    assert modeldir.load(tmp_path / "child").facts["step"] == 3
    assert prepare(["data=files", *words, f"data.root={two}", "segmenter.kind=imported"]) == 2
