"""CTranslate2 translates below the same lines, windows and parts, and finds the same hypotheses."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from nmt import build, modeldir
from nmt.cli import evaluate, score, translate
from nmt.config.settings import Decode
from nmt.decode.sources import Notes
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.exchange import ctranslate2_write, engines, exporting, samples
from nmt.exchange.ctranslate2_engine import CTranslate2Engine
from nmt.modeldir import SETTINGS_BESIDE, Trained
from nmt.system import manifest
from nmt.system.resources import DeviceName
from nmt.text.vocab import BOS, EOS, PAD, UNK
from nmt.toy import pairs
from tests.exchange.test_ctranslate2_export import LETTERS, made

LINES = [*(source for source, _ in pairs(12, 3, 6, "engine")), "", " ", "ein ein", "h"]


def certain(*words: str, ends: float = 0.5) -> Trained:
    """A tiny model in which what nmt never chooses has no probability, as in CTranslate2."""
    trained = made(*words)
    with torch.no_grad():
        trained.model.output.bias[[PAD, BOS, UNK]] = -1e4
        trained.model.output.bias[EOS] += ends
    return trained


def exported(trained: Trained, place: Path, precision: str = "float32") -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "BEYOND", 15)
        patch.setattr(samples, "LONG", 1)
        patch.setattr(ctranslate2_write, "LONGEST", 200)
        exporting.export(trained, place, LINES[:1], precision=precision)
    return place


@pytest.fixture(scope="module")
def model() -> Trained:
    """It has learned to copy up to five pieces, so that its outputs differ, and end.

    At a limit the engines choose otherwise.
    """
    trained = certain("encoding=relative", "tau=4")
    model, optim = trained.model.train(), torch.optim.Adam(trained.model.parameters(), 0.01)
    rows = [trained.source.ids(line) for line, _ in pairs(60, 3, 6, "copied")]
    for update in range(60):
        some = rows[10 * update % 60 :][:10]
        source = pad_sequence([torch.tensor(row) for row in some], batch_first=True)
        target = pad_sequence([torch.tensor([*row[:5], EOS]) for row in some], batch_first=True)
        given = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
        loss = cross_entropy(model(source, given).flatten(0, 1), target.flatten(), ignore_index=PAD)
        optim.zero_grad()
        loss.backward()
        optim.step()
    with torch.no_grad():
        model.output.bias[[PAD, BOS, UNK]] = -1e4
    return trained._replace(model=model.eval())


@pytest.fixture(scope="module")
def place(model: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as an export, in `made`, and as a model directory, in `model`."""
    where = tmp_path_factory.mktemp("engine")
    modeldir.save(model, where / "model")
    exported(model, where / "made")
    return where


def both(trained: Trained, place: Path, decode: Decode) -> list[Translator]:
    return [Translator.of(trained, decode), engines.load([place], "cpu").translator(decode)]


def translated(translator: Translator, lines: Iterable[str], n_best: int = 1) -> Any:
    return list(translator.translate(lines, n_best))


def agree(ours: list[list[Translation]], theirs: list[list[Translation]]) -> None:
    for mine, its in zip(ours, theirs, strict=True):
        assert [each.ids for each in mine] == [each.ids for each in its]
        assert [each.text for each in mine] == [each.text for each in its]
        assert [each.finished for each in mine] == [each.finished for each in its]
        for one, other in zip(mine, its, strict=True):
            assert one.score == pytest.approx(other.score, abs=2e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_hypotheses_and_scores_are_those_of_our_own_engine(
    beam: int, model: Trained, place: Path
) -> None:
    decode = replace(model.settings.decode, beam_size=beam, alpha=0.0)
    ours, theirs = (translated(each, LINES) for each in both(model, place / "made", decode))
    agree(ours, theirs)
    assert len({best.text for best, *_ in ours}) >= 4
    assert beam == 1 or all(best.finished for best, *_ in ours)


@torch.no_grad()
def log_prob_of(model: Trained, line: str, ids: tuple[int, ...]) -> float:
    """That of an output and its eos, by one pass over it."""
    source = torch.tensor([model.source.ids(line)])
    rows = model.model(source, torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
    return float(rows[range(len(ids) + 1), [*ids, EOS]].sum())


@pytest.mark.parametrize("kind", ["wu", "power"])
def test_scores_have_the_length_penalty_that_was_asked_for(
    kind: Any, model: Trained, place: Path
) -> None:
    decode = replace(model.settings.decode, beam_size=3, alpha=0.7, length_penalty=kind)
    _, theirs = both(model, place / "made", decode)
    checked = 0
    for line, found in zip(LINES, translated(theirs, LINES, 3), strict=True):
        assert [each.score for each in found] == sorted(
            (each.score for each in found), reverse=True
        )
        for each in found:
            if line.strip() and each.finished:
                n = len(each.ids) + 1
                penalty = (n if kind == "power" else (5 + n) / 6) ** 0.7
                log_prob = log_prob_of(model, line, each.ids)
                assert each.score == pytest.approx(log_prob / penalty, abs=1e-4)
                checked += 1
    assert checked > 20


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_an_output_is_cut_at_its_own_limit_whatever_the_batch(alpha: float, tmp_path: Path) -> None:
    endless = certain("encoding=none", ends=-60)
    decode = replace(
        endless.settings.decode, beam_size=2, alpha=alpha, max_length_ratio=0.5, max_length_offset=3
    )
    ours, theirs = both(endless, exported(endless, tmp_path / "made"), decode)
    mine = translated(theirs, LINES)
    for line, (best, *_) in zip(LINES, mine, strict=True):
        pieces = len(endless.source.ids(line)) - 1
        assert len(best.ids) == (pieces // 2 + 3 if pieces else 0)
        assert best.finished is not bool(pieces)
    alone = [translated(theirs, [line])[0] for line in LINES]
    agree(mine, alone)
    scores = [best.score for best, *_ in translated(ours, LINES)]
    assert [best.score for best, *_ in mine] == pytest.approx(scores, rel=0.2)


def test_sources_of_several_limits_are_searched_together_as_alone(
    model: Trained, place: Path
) -> None:
    decode = replace(
        model.settings.decode, beam_size=3, alpha=0.7, max_length_ratio=1.0, max_length_offset=1
    )
    _, theirs = both(model, place / "made", decode)
    together = translated(theirs, LINES, 3)
    agree(together, [translated(theirs, [line], 3)[0] for line in LINES])
    cut = [not each.finished for found in together for each in found]
    assert 0 < sum(cut) < len(cut), "some come to their limit, and some do not"


def test_where_no_piece_is_allowed_there_is_none(model: Trained, place: Path) -> None:
    decode = replace(model.settings.decode, max_length_ratio=0.2, max_length_offset=0)
    _, theirs = both(model, place / "made", decode)
    (nothing, *_), (one, *_) = translated(theirs, ["ein", LINES[0]])
    assert nothing == Translation("", 0.0, (), finished=False) and len(one.ids) == 3


@pytest.mark.parametrize("too_long", ["split", "truncate", "refuse"])
def test_sources_beyond_the_table_are_treated_alike(
    too_long: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = ["encoding=learned", "encoding.learned.size=30", f"decode.too_long={too_long}"]
    trained = certain(*words)
    decode = replace(trained.settings.decode, beam_size=2, alpha=0.0)
    made_of = exported(trained, tmp_path / "made")
    long = " ".join(LINES[:3])
    found, logged = [], []
    for translator in both(trained, made_of, decode):
        caplog.clear()
        notes = Notes()
        got: list[list[Translation]] = []
        with caplog.at_level(logging.WARNING, "nmt.decode"):
            try:
                got += translator.translate([LINES[11], long, ""], notes=notes)
            except RefusedLinesError as error:
                logged.append(str(error))
        found.append(got)
        logged += [caplog.text.replace("\r", "")] if too_long != "refuse" else []
        assert {"split", "truncated", "refused"} & {*notes.counts}
    assert len(found[0]) == len(found[1]) == 3
    agree(found[0], found[1])
    assert [line.split(":", 3)[-1] for line in logged[0].split("\n")] == [
        line.split(":", 3)[-1] for line in logged[1].split("\n")
    ]


@pytest.mark.parametrize(("own", "chosen"), [(None, "fr"), ("fr", None)])
def test_a_language_chosen_at_search_takes_a_position_of_the_tables(
    own: str | None, chosen: str | None, tmp_path: Path
) -> None:
    words = ["encoding=learned", "encoding.learned.size=30"]
    words += [f"decode.{side}_language={own or 'null'}" for side in ("source", "target")]
    trained = made(*words, letters=[*LETTERS, ">>fr<<"])
    if own:
        sides = trained.source.vocabulary, trained.target.vocabulary
        build.set_languages(trained.model, trained.settings.decode, *sides)
    decode = replace(
        trained.settings.decode,
        source_language=chosen,
        target_language=chosen,
        beam_size=1,
        unknown="allow",
    )
    ours, theirs = both(trained, exported(trained, tmp_path / "made"), decode)
    assert ours.engine.source_limit == theirs.engine.source_limit == 30 - bool(chosen)
    assert ours.engine.target_limit == theirs.engine.target_limit == 30 - bool(chosen)
    lines = ["e" * pieces for pieces in (28, 29, 30)]
    assert [len(trained.source.ids(line)) - 1 for line in lines] == [28, 29, 30]
    assert len(translated(theirs, lines)) == 3


def test_its_own_threads_find_what_one_finds(place: Path, model: Trained) -> None:
    options = replace(model.settings.decode, window=5, batch_tokens=30)
    lines = [source for source, _ in pairs(30, 3, 6, "threads")]
    alone, several = (
        engines.load([place / "made"], "cpu", 1, workers=workers).translator(options)
        for workers in (1, 3)
    )
    engine = several.engine
    assert isinstance(engine, CTranslate2Engine)
    assert engine.reader.num_translators == engine.threads == 3
    expected = list(alone.translate(lines, 2))
    for _ in range(2):
        assert list(several.translate(lines, 2, read_ahead=True)) == expected
    running = several.translate(lines)
    next(running)
    running.close()
    assert engine.most_workers == 2, "beside another thread, too"
    engine.device = DeviceName("meta")
    with pytest.raises(UserError, match=r"^3 workers: meta searches for one process; take 1"):
        several.texts(lines)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "sample"}, "decode.method=sample: not with CTranslate2, because it draws"),
        ({"no_repeat_ngram": 3}, "decode.no_repeat_ngram=3: not with CTranslate2"),
        ({"length": "forced"}, "decode.length=forced: not with CTranslate2"),
        ({"min_length_ratio": 0.5}, "decode.min_length_ratio=0.5: not with CTranslate2"),
        ({"position_scale": 0.5}, "decode.position_scale=0.5: not with CTranslate2"),
        ({"target_length": "given"}, "decode.target_length=given: not with CTranslate2"),
    ],
)
def test_what_it_cannot_follow_is_refused(
    changes: dict[str, Any], message: str, model: Trained, place: Path
) -> None:
    loaded = engines.load([place / "made"], "cpu")
    with pytest.raises(UserError, match=message):
        loaded.translator(replace(model.settings.decode, **changes))


def test_its_precision_is_that_of_the_export_unless_another_is_asked_for(
    model: Trained, tmp_path: Path
) -> None:
    loaded = engines.load([exported(model, tmp_path / "made", "int8")], "cpu")
    stored = loaded.sides.settings.decode
    assert stored.precision == "int8"
    precisions: tuple[tuple[Any, str], ...] = (("int8", "int8_float32"), ("float32", "float32"))
    for precision, wanted in precisions:
        engine = loaded.translator(replace(stored, precision=precision)).engine
        assert isinstance(engine, CTranslate2Engine)
        assert engine.reader.compute_type == wanted


def test_the_command_translates_as_with_the_model(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    said = []
    for name in ("model", "made"):
        arguments = [str(place / name), str(source), "decode.alpha=0", "decode.beam_size=2"]
        assert translate.main([*arguments, "--device", "cpu"]) == Exit.OK
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].count("\n") == len(LINES)


@pytest.mark.parametrize(
    "options",
    [
        ("--scores", "--device", "cpu"),
        ("--n-best", "2", "--workers", "2", "decode.window=3"),
        ("--json", "decode.max_source=3", "decode.too_long=split", "decode.precision=int8"),
    ],
)
def test_an_export_is_translated_without_torch(
    options: tuple[str, ...], place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = [str(place / "made"), str(source), *options]
    assert translate.main(arguments) == Exit.OK
    expected = capsys.readouterr().out
    program = "import sys; sys.modules['torch'] = None; from nmt.cli.translate import main; "
    program += "sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, check=False, text=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (Exit.OK, expected), done.stderr
    assert expected.count("\n") >= len(LINES)


def test_it_goes_on_after_an_interruption_to_the_same_bytes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    arguments = [str(place / "made"), str(source), "--device", "cpu", "decode.window=4", "--scores"]
    assert translate.main([*arguments, "-o", str(tmp_path / "whole.txt")]) == Exit.OK
    search, calls = CTranslate2Engine.search, []

    def failing(engine: Any, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return search(engine, *given)

    monkeypatch.setattr(CTranslate2Engine, "search", failing)
    assert translate.main([*arguments, "-o", str(output)]) == Exit.INTERRUPTED
    assert not output.exists() and (tmp_path / "out.txt.part").stat().st_size
    assert translate.main([*arguments, "-o", str(output)]) == Exit.OK
    assert output.read_bytes() == (tmp_path / "whole.txt").read_bytes()
    assert len(calls) == 5, "two windows were not translated again"


def test_what_another_engine_reads_is_said(place: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("ein\n", encoding="utf-8")
    with pytest.raises(UserError, match="CTranslate2 searches with one model"):
        engines.load([place / "made", place / "model"], "cpu")
    assert score.main([str(place / "made"), str(source), str(source)]) == Exit.DATA
    output = tmp_path / "out.txt"
    prefixed = [str(place / "made"), str(source), "--target-prefix", str(source)]
    assert translate.main([*prefixed, "-o", str(output)]) == Exit.USAGE
    assert not list(tmp_path.glob("out.txt*"))
    system = [f"a={place / 'made'}", "--source", str(source), "--reference", str(source)]
    assert evaluate.main([*system, "--perplexity"]) == Exit.USAGE


def test_a_directory_that_is_damaged_or_of_others_is_refused(place: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(place / "made", tmp_path / "copied"))
    data = bytearray((copied / "model.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (copied / "model.bin").write_bytes(data)
    with pytest.raises(UserError, match=r"model.bin: damaged; SHA-256"):
        engines.load([copied], "cpu")
    (copied / "manifest.json").unlink()
    with pytest.raises(UserError, match="without what nmt needs to know of it") as error:
        engines.load([copied], "cpu")
    assert error.value.code == Exit.DATA


def test_a_wrong_file_is_named(place: Path, tmp_path: Path) -> None:
    files = {
        file.relative_to(place / "made").as_posix(): file.read_bytes()
        for file in (place / "made").iterdir()
        if file.name != manifest.NAME
    }
    manifest.write(tmp_path / "wrong", [*(files | {"source.json": b"{}"}).items()])
    with pytest.raises(UserError, match=r"source\.json: ") as error:
        engines.load([tmp_path / "wrong"], "cpu")
    assert SETTINGS_BESIDE not in str(error.value) and error.value.code == Exit.DATA


def test_exports_are_systems_of_an_evaluation(place: Path, model: Trained, tmp_path: Path) -> None:
    source, reference = tmp_path / "in.de", tmp_path / "in.en"
    text = pairs(12, 3, 6, "engine")
    for path, side in ((source, 0), (reference, 1)):
        path.write_text("".join(f"{pair[side]}\n" for pair in text), encoding="utf-8")
    arguments = [f"model={place / 'model'}", f"export={place / 'made'}", "--source", str(source)]
    arguments += ["--reference", str(reference), "--samples", "40", "--device", "cpu"]
    arguments += ["--output-dir", str(tmp_path), "-o", str(tmp_path / "r.json")]
    assert evaluate.main([*arguments, "decode.alpha=0", "decode.beam_size=2"]) == Exit.OK
    texts = [(tmp_path / f"{label}.txt").read_bytes() for label in ("model", "export")]
    assert texts[0] == texts[1] and len(texts[0].split()) > 12
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert [system["longest_trained"] for system in report["systems"]] == [12, 12]
