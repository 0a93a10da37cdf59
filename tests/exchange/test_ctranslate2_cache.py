"""--engine: a model is exported once, beside its checkpoint, and translates as it does itself."""

import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt import build, modeldir
from nmt.cli import translate
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_names, ctranslate2_write, engines, interface
from nmt.modeldir import Trained
from tests.exchange.test_ctranslate2_engine import LINES, certain
from tests.exchange.test_ctranslate2_export import LETTERS

FEW = {"MADE_UP": 3, "BEYOND": 15, "LONG": 1, "LONGEST": 200}
SEARCH = ("decode.alpha=0", "decode.beam_size=2")


@pytest.fixture
def saved(model: Trained, tmp_path: Path) -> Path:
    """The model as a directory, and a text beside it."""
    modeldir.save(model, tmp_path / "model")
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return tmp_path / "model"


def cache_of(saved: Path) -> list[Path]:
    """The exports beside a model."""
    return sorted(saved.with_name("model.ctranslate2").glob("[!.]*"))


def run(saved: Path, *options: str) -> int:
    text = str(saved.with_name("in.txt"))
    return translate.main([str(saved), text, "--device", "cpu", *SEARCH, *options])


def searches(saved: Path, engine: str = "auto", **changes: Any) -> bool:
    """Whether CTranslate2 searches in the model."""
    return not engines.load([saved], "cpu", engine=engine, changes=changes).models


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run nmt-translate where torch cannot be imported."""
    program = "import sys; sys.modules['torch'] = None; from nmt.cli.translate import main; "
    program += "sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, check=False, text=True, encoding="utf-8")


def test_one_export_translates_as_the_model_whenever_it_is_asked_again(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(saved) == Exit.OK and not cache_of(saved)
    expected = capsys.readouterr().out
    exported = 0
    for engine in ("auto", "ctranslate2"):
        assert run(saved, "--engine", engine) == Exit.OK
        said = capsys.readouterr()
        assert said.out == expected and "CTranslate2 translates: " in said.err
        exported += said.err.count("exporting the model to CTranslate2")
    (export,) = cache_of(saved)
    assert exported == 1 and (export / interface.CERTIFICATE).is_file()
    assert run(saved, "--engine", "nmt") == Exit.OK
    said = capsys.readouterr()
    assert said.out == expected and "CTranslate2" not in said.err
    arguments = str(saved), str(saved.with_name("in.txt")), "--engine", "auto", *SEARCH
    done = without_torch(*arguments)
    assert (done.returncode, done.stdout) == (Exit.OK, expected), done.stderr
    done = without_torch(str(export), arguments[1], *SEARCH, "--workers", "2", "decode.window=3")
    assert (done.returncode, done.stdout) == (Exit.OK, expected), done.stderr
    assert searches(export)
    with pytest.raises(UserError, match="holds a model for CTranslate2; translate by nmt"):
        searches(export, "nmt")


def test_an_export_is_for_its_checkpoint_its_precision_and_its_versions(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = modeldir.load(saved)
    (saved / "sub").mkdir()
    monkeypatch.chdir(saved / "sub")
    assert searches(Path("..")) and searches(saved, precision="int8")
    assert len(cache_of(saved)) == 2
    monkeypatch.chdir(saved.parent)
    with torch.no_grad():
        loaded.model.output.bias[5] += 1
    shutil.rmtree(saved)
    modeldir.save(loaded, saved)
    assert searches(saved)
    assert len(cache_of(saved)) == 3
    monkeypatch.setattr("ctranslate2.__version__", "99")
    assert searches(saved)
    assert len(cache_of(saved)) == 4


@pytest.mark.slow
def test_two_processes_at_once_export_once(saved: Path) -> None:
    program = (
        "import sys; from nmt.exchange import proof; proof.MADE_UP, proof.LONG = 3, 1; "
        "from nmt.cli.translate import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = [str(saved), str(saved.with_name("in.txt")), "--engine", "auto", *SEARCH]
    command = [sys.executable, "-c", program, *arguments]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, encoding="utf-8", **pipes) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [Exit.OK, Exit.OK], said
    assert said[0][0] == said[1][0] and said[0][0].count("\n") == len(LINES)
    assert sum(err.count("exporting the model to CTranslate2, once") for _, err in said) == 1
    assert all("CTranslate2 translates:" in err for _, err in said)
    assert len(cache_of(saved)) == 1


def test_where_nothing_can_be_written_a_line_says_so(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved.with_name("model.ctranslate2").write_text("in the way", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        assert not searches(saved)
    assert "nmt translates, not CTranslate2: " in caplog.text
    assert "model.ctranslate2: the export for CTranslate2 cannot be written (" in caplog.text
    with pytest.raises(UserError, match=r"make room there, or translate by nmt") as error:
        searches(saved, "ctranslate2")
    assert error.value.code == Exit.CANT_CREATE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "sample"}, "decode.method=sample: not with CTranslate2, because it draws"),
        ({"mbr": 2}, "decode.mbr=2: not with CTranslate2, because its beam"),
        ({"no_repeat_ngram": 3}, "decode.no_repeat_ngram=3: not with CTranslate2"),
        ({"precision": "bfloat16"}, "decode.precision=bfloat16: CTranslate2 does not compute"),
        ({"max_source": 3000}, "decode.max_source=3000: not with CTranslate2, because its"),
        ({"encoding": "cope"}, "more than products"),
    ],
)
def test_what_it_cannot_is_translated_by_nmt_and_one_line_says_why(
    changes: dict[str, Any],
    reason: str,
    saved: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda *_: {"float32"})
    if not {"encoding", "max_source"}.isdisjoint(changes):
        monkeypatch.setattr(ctranslate2_write, "LONGEST", ctranslate2_names.LONGEST)
        shutil.rmtree(saved)
        modeldir.save(certain(f"encoding={changes.pop('encoding', 'absolute')}"), saved)
    with caplog.at_level(logging.INFO):
        assert not searches(saved, **changes)
    assert caplog.text.count("nmt translates, not CTranslate2: ") == 1 and reason in caplog.text
    with pytest.raises(UserError, match=reason):
        searches(saved, "ctranslate2", **changes)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--target-prefix", "IN"), "target prefixes: not with CTranslate2"),
        (("--alignment", "hard"), "alignments: not with CTranslate2"),
        (("MODEL",), "several models: CTranslate2 searches with one model"),
    ],
)
def test_nor_what_the_command_asks_for(
    options: tuple[str, ...], reason: str, saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"IN": str(saved.with_name("empty")), "MODEL": str(saved)}
    saved.with_name("empty").write_text("\n" * len(LINES), encoding="utf-8")
    options = tuple(names.get(option, option) for option in options)
    assert run(saved, *options, "--engine", "auto") == Exit.OK
    auto = capsys.readouterr()
    said = [line for line in auto.err.split("\n") if "nmt translates, not CTranslate2: " in line]
    assert len(said) == 1 and reason in said[0] and auto.out.count("\n") == len(LINES)
    assert run(saved, *options, "--engine", "ctranslate2") not in (Exit.OK, 1)
    refused = capsys.readouterr()
    assert reason in refused.err and not refused.out


def test_what_the_call_lifts_of_the_models_own_settings_is_not_refused(
    model: Trained, tmp_path: Path
) -> None:
    own = replace(model.settings.decode, no_repeat_ngram=3, position_scale=0.5)
    directory = tmp_path / "model"
    modeldir.save(model._replace(settings=replace(model.settings, decode=own)), directory)
    assert searches(directory, "ctranslate2", no_repeat_ngram=0, position_scale=1)
    with pytest.raises(UserError, match=r"decode.no_repeat_ngram=3: not with CTranslate2"):
        searches(directory, "ctranslate2", position_scale=1)


def test_a_language_takes_a_position_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LONGEST", 200)
    languages = ["decode.source_language=fr", "decode.target_language=fr"]
    trained = certain("encoding=absolute", *languages, letters=[*LETTERS, ">>fr<<"])
    vocabulary = trained.source.vocabulary
    build.set_languages(trained.model, trained.settings.decode, vocabulary, vocabulary)
    modeldir.save(trained, tmp_path / "model")
    short: dict[str, Any] = {"max_source": 10, "max_length_ratio": 0.5}
    ratio = {"max_length_offset": 10}
    for changes, key in (
        ({"max_source": 198}, None),
        ({"max_source": 199}, "max_source"),
        ({"max_source": 199, "source_language": None}, None),
        ({"max_source": 200, "source_language": None}, "max_source"),
        ({"max_length_ratio": 18.8, **ratio}, None),
        ({"max_length_ratio": 18.9, **ratio}, "max_length_ratio"),
    ):
        if key is None:
            assert searches(tmp_path / "model", "ctranslate2", **short | changes)
        else:
            with pytest.raises(UserError, match=rf"^decode\.{key}="):
                searches(tmp_path / "model", "ctranslate2", **short | changes)


def test_a_damaged_export_is_not_used(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert searches(saved)
    (weights,) = saved.with_name("model.ctranslate2").glob("*/model.bin")
    weights.write_bytes(b"\0" * weights.stat().st_size)
    with caplog.at_level(logging.INFO):
        assert not searches(saved)
    assert "model.bin: damaged" in caplog.text


def test_auto_is_for_cpus(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with caplog.at_level(logging.INFO), pytest.raises((RuntimeError, AssertionError)):
        engines.load([saved], "cuda", engine="auto")  # there is none
    assert "nmt translates, not CTranslate2: device=cuda: not a CPU" in caplog.text


def test_without_ctranslate2_nmt_translates(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        assert not searches(saved)
    assert "not CTranslate2: engine=auto: ctranslate2 is not installed" in caplog.text
    with pytest.raises(UserError, match=r"pip install 'nmt-toolkit\[ct2\]'") as error:
        searches(saved, "ctranslate2")
    assert error.value.code == Exit.UNAVAILABLE


def test_from_python(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained = nmt.load(saved)
    search: dict[str, Any] = {"alpha": 0.0, "beam_size": 2}
    expected = nmt.translate(trained, LINES, workers=1, **search)
    with caplog.at_level(logging.INFO):
        assert nmt.translate(trained, LINES, workers=2, engine="auto", **search) == expected
        assert list(nmt.translate_stream(trained, LINES, engine="auto", **search)) == expected
        assert caplog.text.count("CTranslate2 translates: ") == 2 and len(cache_of(saved)) == 1
        caplog.clear()
        samples = {"engine": "auto", "method": "sample"}
        assert len(nmt.translate(trained, LINES, **samples)) == len(LINES)  # type: ignore[arg-type]
        assert caplog.text.count("nmt translates, not CTranslate2: decode.method=sample") == 1
    with pytest.raises(UserError, match=r"engine=fast: choose among nmt, ctranslate2, auto"):
        nmt.translate(trained, LINES, engine="fast")


def test_what_changed_in_memory_is_not_in_an_export(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Settings of the search follow the call; other weights are translated by nmt."""
    trained = nmt.load(saved)
    own, trained.settings.decode.beam_size = trained.settings.decode.beam_size, 2
    nmt.translate(trained, LINES[:2], workers=1, engine="ctranslate2")
    assert engines.load(cache_of(saved), "cpu").sides.settings.decode.beam_size == own != 2
    changed = nmt.load(saved)
    with torch.no_grad():
        changed.model.output.bias[5] += 3
    expected = nmt.translate(changed, LINES, workers=1)
    with caplog.at_level(logging.INFO):
        assert nmt.translate(changed, LINES, workers=1, engine="auto") == expected
        assert "not CTranslate2: model: is not what a directory holds" in caplog.text
        nmt.translate(changed._replace(directory=None), LINES[:1], workers=1, engine="auto")
    assert caplog.text.count("is not what a directory holds") == 2
