"""What other toolkits write is named for what it is, with what to do, by every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import import_model
from nmt.cli.translate import main as translate
from nmt.errors import Exit


def holding(*names: str, **config: Any) -> Callable[[Path], None]:
    """Makes a directory with these files, and these keys in config.json."""

    def make(directory: Path) -> None:
        directory.mkdir()
        for name in names:
            (directory / name).write_bytes(b"\x80")
        if config:
            (directory / "config.json").write_text(json.dumps(config))

    return make


MARIAN = {"model_type": "marian", "d_model": 8}
OURS = dict.fromkeys(("seed", "data", "segmenter", "model", "trainer", "decode"))
COMPARE = "give nmt-evaluate the translations"
OTHER = "weights of another toolkit"
DIRECTORIES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "mBART": (holding(model_type="mbart"), "a model of Hugging Face of the type mbart", COMPARE),
    "Bart": (holding(model_type="bart"), "a model of Hugging Face of the type bart", COMPARE),
    "Eole": (holding("model.00.safetensors", model={}), "a model of Eole", "eole_ct2"),
    "a run of nmt": (holding(**OURS), "a run or a model directory of nmt", "needs no import"),
    "Firefox": (holding("model.deen.intgemm.alphas.bin"), "a model of Marian that is", "teacher"),
    "fairseq": (holding("model.pt", "dict.de.txt"), "a model of fairseq", "fairseq-converter"),
    "OpenNMT-py": (
        holding("model_step_100.pt"),
        "a model of OpenNMT-py",
        "ct2-opennmt-py-converter",
    ),
    "OpenNMT-tf": (holding("ckpt-100.index"), "a model of OpenNMT-tf", "ct2-opennmt-tf-converter"),
    "Sockeye": (holding("params.best", "version"), OTHER, COMPARE),
    "Joey NMT": (holding("best.ckpt", "config.yaml"), OTHER, COMPARE),
    "nothing": (
        holding("notes.txt"),
        "holds no config.json and no known model",
        "nmt-import reads",
    ),
}


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_a_directory_that_cannot_be_imported_is_named(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, what, advice = DIRECTORIES[kind]
    make(tmp_path / "original")
    assert import_model.main([str(tmp_path / "original"), str(tmp_path / "made")]) == Exit.DATA
    err = capsys.readouterr().err
    assert err.startswith(f"nmt: {tmp_path / 'original'}: {what}") and advice in err
    assert err.count("\n") == 1 and not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("checkpoint_best.pt", "a model of fairseq;"),
        ("model.pt", "weights of another toolkit;"),
        ("model.safetensors", "a file; give its directory, {directory};"),
    ],
)
def test_a_file_is_not_taken_for_a_missing_directory(
    name: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holding(name, **MARIAN)(directory := tmp_path / "original")
    assert import_model.main([str(directory / name), str(tmp_path / "made")]) == Exit.DATA
    what = what.format(directory=directory)
    assert capsys.readouterr().err.startswith(f"nmt: {directory / name}: {what}")


@pytest.mark.parametrize("prefix", ["", "https://huggingface.co/"])
def test_for_a_name_of_the_hub_the_error_says_how_to_download_it(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    name = f"{prefix}Helsinki-NLP/opus-mt-de-en"
    assert import_model.main([name, "made"]) == Exit.NO_INPUT
    message = capsys.readouterr().err
    assert "hf download Helsinki-NLP/opus-mt-de-en --local-dir opus-mt-de-en" in message
    (tmp_path / "models").mkdir()
    assert import_model.main(["models/mistyped", "made"]) == Exit.NO_INPUT
    assert "hf download" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (holding("model.bin", "shared_vocabulary.json", add_source_eos=True), "CTranslate2"),
        (holding("model.safetensors", **MARIAN), "a Marian model of Hugging Face"),
    ],
)
def test_a_model_that_can_be_imported_says_so_where_a_model_directory_is_wanted(
    make: Callable[[Path], None], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "original")
    (tmp_path / "in.txt").write_text("a\n")
    assert translate([str(tmp_path / "original"), str(tmp_path / "in.txt")]) == Exit.DATA
    err = capsys.readouterr().err
    assert what in err and err.count("\n") == 1
