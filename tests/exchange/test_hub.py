"""A name of the Hugging Face hub is downloaded where its library is installed."""

import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from nmt import modeldir
from nmt.cli import import_model
from nmt.errors import Exit
from nmt.exchange import importing
from tests.exchange.m2m100_models import make

FEW = {"MADE_UP": 2, "BEYOND": 20, "LONG": 1, "USUAL_LENGTH": 12}
NAME = "owner/model-1.5"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a model on the hub, to be filled; what is downloaded lies in `cache`."""
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    remote.mkdir()
    for name in ("tf_model.h5", "rust_model.ot", "README.md", ".gitattributes"):
        (remote / name).write_bytes(b"x")
    monkeypatch.chdir(tmp_path)

    def snapshot(name: str, allow_patterns: list[str]) -> str:
        assert name == NAME
        cache.mkdir(exist_ok=True)
        for file in filter(Path.is_file, remote.iterdir()):
            if any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                shutil.copy(file, cache)
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return remote


def test_a_name_is_downloaded_and_imported(remote: Path) -> None:
    """What is asked for suffices, and no file of another framework is among it."""
    make(remote.parent / "new")
    for file in (remote.parent / "new").iterdir():
        file.rename(remote / file.name)
    assert import_model.main([NAME, "made"]) == Exit.OK
    assert modeldir.load("made").settings.decode.target_language == "eng_Latn"
    config = {"config.json", "generation_config.json", "tokenizer_config.json"}
    weights = {"tokenizer.json", "sentencepiece.bpe.model", "model.safetensors"}
    assert {file.name for file in Path("cache").iterdir()} == config | weights


@pytest.mark.parametrize(
    "files",
    [
        {"config.json", "vocab.json", "source.spm", "target.spm", "pytorch_model.bin"},
        {"config.json", "opus.npz", "opus.yml", "decoder.yml", "source.spm", "target.spm"},
    ],
)
def test_older_weights_are_downloaded_where_there_are_no_others(
    files: set[str], remote: Path
) -> None:
    for name in files:
        (remote / name).write_text('{"model_type": "marian"}')
    assert {file.name for file in importing.locate(Path(NAME)).iterdir()} == files


def test_without_a_network_one_clear_error_says_how_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def snapshot(*_: Any, **__: Any) -> str:
        raise huggingface_hub.errors.LocalEntryNotFoundError("An error happened\nwhile trying")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert import_model.main([NAME, "made"]) == Exit.UNAVAILABLE
    (message,) = [line for line in capsys.readouterr().err.split("\n") if line.startswith("nmt:")]
    assert message.startswith(f"nmt: {NAME}: cannot be downloaded") and "while trying" in message
    assert "hf download or git clone" in message and not list(tmp_path.iterdir())


def test_a_directory_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)  # must not be called
    (tmp_path / NAME).mkdir(parents=True)
    assert import_model.main([NAME, "made"]) == Exit.DATA
    assert "holds no config.json" in capsys.readouterr().err
    assert import_model.main(["owner/other", "made"]) == Exit.NO_INPUT  # a mistyped path
