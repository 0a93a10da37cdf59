"""--engine: a model is exported once, beside its checkpoint, and translates as it does itself."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt import modeldir
from nmt.cli import translate
from nmt.errors import Exit, UserError
from nmt.exchange import (
    ctranslate2_names,
    ctranslate2_write,
    engines,
    exporting,
    importing,
    interface,
    proof,
)
from nmt.exchange.ctranslate2_engine import CTranslate2Engine
from nmt.modeldir import Trained
from tests.exchange.m2m100_models import make
from tests.exchange.test_ctranslate2_engine import LINES, certain, model  # noqa: F401  (a fixture)

FEW = {"MADE_UP": 3, "BEYOND": 15, "LONG": 1, "LONGEST": 200}
SEARCH = ("decode.alpha=0", "decode.beam_size=2")


@pytest.fixture(autouse=True)
def exports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Where exports were made during a test."""
    places: list[Path] = []
    export = exporting.export

    def counted(trained: Trained, path: Path, **options: Any) -> Any:
        places.append(path)
        return export(trained, path, **options)

    monkeypatch.setattr(exporting, "export", counted)
    yield places


@pytest.fixture
def saved(model: Trained, tmp_path: Path) -> Path:  # noqa: F811
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


def test_one_export_translates_as_the_model_whenever_it_is_asked_again(
    saved: Path, exports: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(saved) == Exit.OK and not exports
    expected = capsys.readouterr().out
    searches = []
    search = CTranslate2Engine.search

    def counted(*given: Any) -> Any:
        searches.append(1)
        return search(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CTranslate2Engine, "search", counted)
        for engine in ("auto", "ctranslate2", "auto"):
            before = len(searches)
            assert run(saved, "--engine", engine) == Exit.OK
            assert capsys.readouterr().out == expected
            assert len(searches) > before
    assert exports == cache_of(saved) and len(exports) == 1
    assert (exports[0] / interface.CERTIFICATE).is_file()
    assert run(saved, "--engine", "nmt") == Exit.OK
    assert capsys.readouterr().out == expected


def test_with_an_export_there_torch_is_not_imported(
    saved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(saved, "--engine", "auto") == Exit.OK
    expected = capsys.readouterr().out
    program = "import sys; sys.modules['torch'] = None; from nmt.cli.translate import main; "
    program += "sys.exit(main(sys.argv[1:]))"
    arguments = [str(saved), str(saved.with_name("in.txt")), "--engine", "auto", *SEARCH]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (Exit.OK, expected), done.stderr


@pytest.mark.parametrize("name", [".", "..", "sub/.."])
def test_it_lies_beside_the_model_whatever_that_is_called(
    name: str, saved: Path, exports: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (saved / "sub").mkdir()
    monkeypatch.chdir(saved / "sub" if name == ".." else saved)
    assert engines.load([name], "cpu", engine="auto").models == []
    assert exports == cache_of(saved) and len(exports) == 1


def test_an_export_is_for_its_checkpoint_its_precision_and_its_versions(
    saved: Path, exports: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = modeldir.load(saved)
    engine = ("--engine", "auto")
    assert run(saved, *engine) == run(saved, *engine, "decode.precision=int8") == Exit.OK
    assert len(exports) == 2
    with torch.no_grad():
        loaded.model.output.bias[5] += 1
    shutil.rmtree(saved)
    modeldir.save(loaded, saved)
    assert run(saved, *engine) == Exit.OK
    assert len(exports) == 3
    monkeypatch.setattr("ctranslate2.__version__", "99")
    assert run(saved, *engine) == Exit.OK
    assert len(exports) == len({*exports}) == 4 and sorted(exports) == cache_of(saved)


def test_two_processes_at_once_export_once(saved: Path) -> None:
    program = (
        "import sys; from nmt.exchange import samples; samples.MADE_UP, samples.LONG = 3, 1; "
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


def test_after_a_long_search_the_faster_engine_is_named_once(
    saved: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(saved) == Exit.OK
    assert "--engine auto" not in capsys.readouterr().err
    monkeypatch.setattr(translate, "LONG", -1)
    assert run(saved) == Exit.OK
    assert capsys.readouterr().err.count("--engine auto lets CTranslate2 search") == 1
    assert run(saved, "--engine", "nmt") == Exit.OK
    assert "--engine auto" not in capsys.readouterr().err


def test_where_nothing_can_be_written_a_line_says_so(
    saved: Path, exports: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    saved.with_name("model.ctranslate2").write_text("in the way", encoding="utf-8")
    with caplog.at_level(logging.INFO):
        assert engines.load([saved], "cpu", engine="auto").models
    assert "nmt translates, not CTranslate2: " in caplog.text
    assert "model.ctranslate2: the export for CTranslate2 cannot be written (" in caplog.text
    with pytest.raises(UserError, match=r"make room there, or translate by nmt") as error:
        engines.load([saved], "cpu", engine="ctranslate2")
    assert error.value.code == Exit.CANT_CREATE and not exports


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("decode.method=sample",), "decode.method=sample: not with CTranslate2, because it draws"),
        (("decode.mbr=2",), "decode.mbr=2: not with CTranslate2, because its beam"),
        (("decode.no_repeat_ngram=3",), "decode.no_repeat_ngram=3: not with CTranslate2"),
        (("decode.coverage_penalty=0.2",), "decode.coverage_penalty=0.2: not with CTranslate2"),
        (("decode.max_source=3000",), "decode.max_source=3000: not with CTranslate2, because its"),
        (("decode.precision=bfloat16",), "decode.precision=bfloat16: CTranslate2 does not compute"),
        (("--target-prefix", "IN"), "target prefixes: not with CTranslate2"),
        (("--alignment", "hard"), "alignments: not with CTranslate2"),
        (("MODEL",), "several models: CTranslate2 searches with one model"),
        (("ENCODING",), "more than products"),
    ],
)
def test_what_it_cannot_is_translated_by_nmt_and_one_line_says_why(
    options: tuple[str, ...],
    reason: str,
    saved: Path,
    exports: list[Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctranslate2_write, "LONGEST", ctranslate2_names.LONGEST)
    if options == ("ENCODING",):
        shutil.rmtree(saved)
        modeldir.save(certain("encoding=cope"), saved)
        options = ()
    elif "max_source" in options[0]:
        shutil.rmtree(saved)
        modeldir.save(certain("encoding=absolute"), saved)
    if reason.startswith("decode.precision"):
        monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda *given: {"float32"})
    monkeypatch.setattr(translate, "LONG", -1)
    names = {"IN": str(saved.with_name("empty")), "MODEL": str(saved)}
    saved.with_name("empty").write_text("\n" * len(LINES), encoding="utf-8")
    options = tuple(names.get(option, option) for option in options)
    changes = () if "sample" in "".join(options) else SEARCH
    text = [str(saved), str(saved.with_name("in.txt")), "--device", "cpu", *changes, *options]
    assert translate.main(text) == Exit.OK
    ours = capsys.readouterr()
    assert "--engine auto" not in ours.err
    assert translate.main([*text, "--engine", "auto"]) == Exit.OK
    auto = capsys.readouterr()
    assert auto.out == ours.out
    said = [line for line in auto.err.split("\n") if "nmt translates, not CTranslate2: " in line]
    assert len(said) == 1 and reason in said[0]
    assert translate.main([*text, "--engine", "ctranslate2"]) not in (Exit.OK, 1)
    refused = capsys.readouterr()
    assert reason in refused.err and not refused.out


def test_what_the_call_lifts_of_the_models_own_settings_is_not_refused(
    model: Trained,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = replace(model.settings.decode, no_repeat_ngram=3, position_scale=0.5)
    place = tmp_path / "model"
    modeldir.save(model._replace(settings=replace(model.settings, decode=own)), place)
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    lifted = ("decode.no_repeat_ngram=0", "decode.position_scale=1")
    assert run(place, *lifted) == Exit.OK
    expected = capsys.readouterr().out
    assert run(place, *lifted, "--engine", "ctranslate2") == Exit.OK
    assert capsys.readouterr().out == expected
    assert run(place, lifted[1], "--engine", "ctranslate2") == Exit.USAGE
    assert "decode.no_repeat_ngram=3: not with CTranslate2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"max_source": 198}, None),
        ({"max_source": 199}, "max_source"),
        ({"max_source": 199, "source_language": None}, None),
        ({"max_source": 200, "source_language": None}, "max_source"),
        ({"max_source": 10, "max_length_ratio": 18.8, "max_length_offset": 10}, None),
        ({"max_source": 10, "max_length_ratio": 18.9, "max_length_offset": 10}, "max_length_ratio"),
    ],
)
def test_a_language_takes_a_position_of_the_tables(
    changes: dict[str, Any],
    key: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "LONGEST", 200)
    make(tmp_path / "theirs")
    modeldir.save(importing.read(tmp_path / "theirs").trained, tmp_path / "model")
    limits = {"max_source": 10, "max_length_ratio": 0.5} | changes
    with caplog.at_level(logging.INFO):
        loaded = engines.load([tmp_path / "model"], "cpu", engine="auto", changes=limits)
    assert (not loaded.models) == (key is None)
    assert (f"decode.{key}=" in caplog.text) == (key is not None)


def test_an_export_that_differs_is_not_kept(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "LOG_PROBS", -1.0)
    with caplog.at_level(logging.INFO):
        assert engines.load([saved], "cpu", engine="auto").models
    assert "not CTranslate2: log-probabilities in ctranslate2 differ" in caplog.text
    assert not cache_of(saved)


def test_a_damaged_export_is_not_used(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not engines.load([saved], "cpu", engine="auto").models
    (weights,) = saved.with_name("model.ctranslate2").glob("*/model.bin")
    weights.write_bytes(b"\0" * weights.stat().st_size)
    with caplog.at_level(logging.INFO):
        assert engines.load([saved], "cpu", engine="auto").models
    assert "model.bin: damaged" in caplog.text


def test_auto_is_for_cpus(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "is_cpu", lambda name: False)
    with caplog.at_level(logging.INFO):
        assert engines.load([saved], "cpu", engine="auto").models
    assert "nmt translates, not CTranslate2: device=cpu: not a CPU" in caplog.text


def test_without_ctranslate2_nmt_translates(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        assert engines.load([saved], "cpu", engine="auto").models
    assert "not CTranslate2: engine=auto: ctranslate2 is not installed" in caplog.text
    with pytest.raises(UserError, match=r"pip install 'nmt-toolkit\[ct2\]'"):
        engines.load([saved], "cpu", engine="ctranslate2")


def test_an_export_of_ones_own_is_not_for_nmt(saved: Path) -> None:
    assert not engines.load([saved], "cpu", engine="auto").models
    (made,) = cache_of(saved)
    assert not engines.load([made], "cpu", engine="auto").models
    with pytest.raises(UserError, match="holds a model for CTranslate2; translate by nmt"):
        engines.load([made], "cpu", engine="nmt")


def test_from_python(saved: Path, exports: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    trained = nmt.load(saved)
    search: dict[str, Any] = {"alpha": 0.0, "beam_size": 2}
    ours = nmt.translate(trained, LINES, workers=1, **search)
    with caplog.at_level(logging.INFO):
        for workers in (1, 2):
            theirs = nmt.translate(trained, LINES, workers=workers, engine="auto", **search)
            assert theirs == ours
        assert list(nmt.translate_stream(trained, LINES, engine="auto", **search)) == ours
        assert caplog.text.count("CTranslate2 translates: ") == 3 and len(exports) == 1
        caplog.clear()
        samples = {"engine": "auto", "method": "sample"}
        assert len(nmt.translate(trained, LINES, **samples)) == len(LINES)  # type: ignore[arg-type]
        assert caplog.text.count("nmt translates, not CTranslate2: decode.method=sample") == 1
    with pytest.raises(UserError, match=r"engine=fast: choose among nmt, ctranslate2, auto"):
        nmt.translate(trained, LINES, engine="fast")


def test_settings_that_changed_in_memory_are_not_kept(saved: Path, exports: list[Path]) -> None:
    """An export is the model as its directory has it."""
    trained = nmt.load(saved)
    own, trained.settings.decode.beam_size = trained.settings.decode.beam_size, 2
    nmt.translate(trained, LINES, workers=1, engine="ctranslate2")
    assert own != 2 == trained.settings.decode.beam_size
    assert engines.load(exports, "cpu").sides.settings.decode.beam_size == own


def test_weights_that_changed_in_memory_are_translated_by_nmt(
    saved: Path, exports: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    changed = nmt.load(saved)
    with torch.no_grad():
        changed.model.output.bias[5] += 3
    ours = nmt.translate(changed, LINES, workers=1)
    with caplog.at_level(logging.INFO):
        assert nmt.translate(changed, LINES, workers=1, engine="auto") == ours
        assert "not CTranslate2: model: is not what a directory holds" in caplog.text
        nmt.translate(changed._replace(directory=None), LINES, workers=1, engine="auto")
    assert caplog.text.count("is not what a directory holds") == 2 and not exports
