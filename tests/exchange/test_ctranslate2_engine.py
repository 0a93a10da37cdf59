"""CTranslate2 translates below the same lines, windows and parts, and finds the same hypotheses."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from nmt import modeldir
from nmt.cli import evaluate
from nmt.config.settings import Decode, with_decode
from nmt.decode.notes import Notes
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, UserError
from nmt.exchange import ctranslate2_write, engines, exporting, proof
from nmt.exchange.ctranslate2_engine import CTranslate2Engine
from nmt.modeldir import Trained
from nmt.system.resources import DeviceName
from nmt.text.vocab import BOS, EOS, PAD, UNK
from nmt.toy import pairs
from tests.exchange.test_ctranslate2_export import LETTERS, made

LINES = [*(source for source, _ in pairs(12, 3, 6, "engine")), "", " ", "ein ein", "h"]


def certain(*words: str, ends: float = 0.5, letters: list[str] = LETTERS) -> Trained:
    """A tiny model in which what nmt never chooses has no probability, as in CTranslate2."""
    trained = made(*words, letters=letters)
    with torch.no_grad():
        trained.model.output.bias[[PAD, BOS, UNK]] = -1e4
        trained.model.output.bias[EOS] += ends
    return trained


def exported(trained: Trained, directory: Path, precision: str = "float32") -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proof, "BEYOND", 15)
        patch.setattr(proof, "LONG", 1)
        patch.setattr(ctranslate2_write, "LONGEST", 200)
        exporting.export(trained, directory, LINES[:1], precision=precision)
    return directory


def copying() -> Trained:
    """A model that has learned to copy up to five pieces, so that its outputs differ, and end.

    At a limit the engines choose otherwise.
    """
    trained = certain("encoding=relative", "tau=4")
    model, optim = trained.model.train(), torch.optim.Adam(trained.model.parameters(), 0.01)
    rows = [trained.source.ids(line) for line, _ in pairs(60, 3, 6, "copied")]
    for update in range(48):
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
def directory(model: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as an export, in `made`, and as a model directory, in `model`."""
    where = tmp_path_factory.mktemp("engine")
    modeldir.save(model, where / "model")
    exported(model, where / "made")
    return where


def both(trained: Trained, directory: Path, decode: Decode) -> list[Translator]:
    return [Translator.of(trained, decode), engines.load([directory], "cpu").translator(decode)]


def translated(translator: Translator, lines: Iterable[str], n_best: int = 1) -> Any:
    return list(translator.translate(lines, n_best))


def agree(some: list[list[Translation]], same: list[list[Translation]]) -> None:
    for ones, others in zip(some, same, strict=True):
        assert [each.ids for each in ones] == [each.ids for each in others]
        assert [each.text for each in ones] == [each.text for each in others]
        assert [each.finished for each in ones] == [each.finished for each in others]
        for one, other in zip(ones, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=2e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_hypotheses_and_scores_are_those_of_our_own_engine(
    beam: int, model: Trained, directory: Path
) -> None:
    decode = replace(model.settings.decode, beam_size=beam, alpha=0.0)
    by_nmt, by_ctranslate2 = (
        translated(each, LINES) for each in both(model, directory / "made", decode)
    )
    agree(by_nmt, by_ctranslate2)
    assert len({best.text for best, *_ in by_nmt}) >= 4
    assert beam == 1 or all(best.finished for best, *_ in by_nmt)


@torch.no_grad()
def log_prob_of(model: Trained, line: str, ids: tuple[int, ...]) -> float:
    """That of an output and its eos, by one pass over it."""
    source = torch.tensor([model.source.ids(line)])
    rows = model.model(source, torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
    return float(rows[range(len(ids) + 1), [*ids, EOS]].sum())


@pytest.mark.parametrize("kind", ["wu", "power"])
def test_scores_have_the_length_penalty_that_was_asked_for(
    kind: Any, model: Trained, directory: Path
) -> None:
    decode = replace(model.settings.decode, beam_size=3, alpha=0.7, length_penalty=kind)
    _, by_ctranslate2 = both(model, directory / "made", decode)
    checked = 0
    for line, hypotheses in zip(LINES, translated(by_ctranslate2, LINES, 3), strict=True):
        assert [each.score for each in hypotheses] == sorted(
            (each.score for each in hypotheses), reverse=True
        )
        for each in hypotheses:
            if line.strip() and each.finished:
                n = len(each.ids) + 1
                penalty = (n if kind == "power" else (5 + n) / 6) ** 0.7
                log_prob = log_prob_of(model, line, each.ids)
                assert each.score == pytest.approx(log_prob / penalty, abs=1e-4)
                checked += 1
    assert checked > 20


def test_an_output_is_cut_at_its_own_limit_whatever_the_batch(tmp_path: Path) -> None:
    endless = certain("encoding=none", ends=-60)
    exported(endless, tmp_path / "made")
    limit = {"max_length_ratio": 0.5, "max_length_offset": 3}
    for alpha in (0.0, 0.7):
        decode = with_decode(endless.settings, {"beam_size": 2, "alpha": alpha, **limit}).decode
        by_nmt, by_ctranslate2 = both(endless, tmp_path / "made", decode)
        mine = translated(by_ctranslate2, LINES)
        for line, (best, *_) in zip(LINES, mine, strict=True):
            pieces = len(endless.source.ids(line)) - 1
            assert len(best.ids) == (pieces // 2 + 3 if pieces else 0)
            assert best.finished is not bool(pieces)
        agree(mine, [translated(by_ctranslate2, [line])[0] for line in LINES])
        scores = [best.score for best, *_ in translated(by_nmt, LINES)]
        assert [best.score for best, *_ in mine] == pytest.approx(scores, rel=0.2)


def test_sources_of_several_limits_are_searched_together_as_alone(
    model: Trained, directory: Path
) -> None:
    decode = replace(
        model.settings.decode, beam_size=3, alpha=0.7, max_length_ratio=1.0, max_length_offset=1
    )
    _, by_ctranslate2 = both(model, directory / "made", decode)
    together = translated(by_ctranslate2, LINES, 3)
    agree(together, [translated(by_ctranslate2, [line], 3)[0] for line in LINES])
    cut = [not each.finished for hypotheses in together for each in hypotheses]
    assert 0 < sum(cut) < len(cut), "some come to their limit, and some do not"


def test_where_no_piece_is_allowed_there_is_none(model: Trained, directory: Path) -> None:
    decode = replace(model.settings.decode, max_length_ratio=0.2, max_length_offset=0)
    _, by_ctranslate2 = both(model, directory / "made", decode)
    (nothing, *_), (one, *_) = translated(by_ctranslate2, ["ein", LINES[0]])
    assert nothing == Translation("", 0.0, (), finished=False) and len(one.ids) == 3


def test_sources_beyond_the_table_are_split_alike(tmp_path: Path) -> None:
    words = ["encoding=learned", "encoding.learned.size=30", "decode.too_long=split"]
    trained = certain(*words, "decode.beam_size=2", "decode.alpha=0")
    hypotheses = []
    for translator in both(trained, exported(trained, tmp_path / "made"), trained.settings.decode):
        notes = Notes()
        lines = [LINES[11], " ".join(LINES[:3]), ""]
        hypotheses.append(list(translator.translate(lines, notes=notes)))
        assert "split" in notes.counts
    agree(*hypotheses)


def test_a_language_chosen_at_search_takes_a_position_of_the_tables(tmp_path: Path) -> None:
    words = ["encoding=learned", "encoding.learned.size=30"]
    trained = made(*words, letters=[*LETTERS, ">>fr<<"])
    language = dict.fromkeys(("source_language", "target_language"), "fr")
    search = {**language, "beam_size": 1, "unknown": "allow"}
    decode = with_decode(trained.settings, search).decode
    by_nmt, by_ctranslate2 = both(trained, exported(trained, tmp_path / "made"), decode)
    assert by_nmt.engine.source_limit == by_ctranslate2.engine.source_limit == 29
    assert by_nmt.engine.target_limit == by_ctranslate2.engine.target_limit == 29
    lines = ["e" * pieces for pieces in (28, 29, 30)]
    assert [len(trained.source.ids(line)) - 1 for line in lines] == [28, 29, 30]
    assert len(translated(by_ctranslate2, lines)) == 3


def test_its_own_threads_find_what_one_finds(directory: Path, model: Trained) -> None:
    options = replace(model.settings.decode, window=5, batch_tokens=30)
    lines = [source for source, _ in pairs(30, 3, 6, "threads")]
    alone, several = (
        engines.load([directory / "made"], "cpu", 1, workers=workers).translator(options)
        for workers in (1, 3)
    )
    engine = several.engine
    assert isinstance(engine, CTranslate2Engine)
    assert engine.reader.num_translators == engine.threads == 3
    expected = list(alone.translate(lines, 2))
    assert list(several.translate(lines, 2, read_ahead=True)) == expected
    assert engine.most_workers == 2, "beside another thread, too"
    engine.device = DeviceName("meta")
    with pytest.raises(UserError, match=r"^3 workers: meta searches for one process; take 1"):
        several.texts(lines)


def test_what_it_cannot_follow_is_refused(model: Trained, directory: Path) -> None:
    loaded = engines.load([directory / "made"], "cpu")
    for key, value in (
        ("method", "sample"), ("no_repeat_ngram", 3), ("length", "forced"),
        ("min_length_ratio", 0.5), ("position_scale", 0.5), ("target_length", "given"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=rf"decode\.{key}={value}: not with CTranslate2"):
            loaded.translator(with_decode(model.settings, {key: value}).decode)


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


def test_a_directory_that_is_damaged_or_of_others_is_refused(
    directory: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(directory / "made", tmp_path / "copied"))
    data = bytearray((copied / "model.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (copied / "model.bin").write_bytes(data)
    with pytest.raises(UserError, match=r"model.bin: damaged; SHA-256"):
        engines.load([copied], "cpu")
    (copied / "manifest.json").unlink()
    with pytest.raises(UserError, match="lacks the files of nmt") as error:
        engines.load([copied], "cpu")
    assert error.value.code == Exit.DATA


def test_exports_are_systems_of_an_evaluation(
    directory: Path, model: Trained, tmp_path: Path
) -> None:
    source, reference = tmp_path / "in.de", tmp_path / "in.en"
    text = pairs(12, 3, 6, "engine")
    for path, side in ((source, 0), (reference, 1)):
        path.write_text("".join(f"{pair[side]}\n" for pair in text), encoding="utf-8")
    arguments = [
        f"model={directory / 'model'}",
        f"export={directory / 'made'}",
        "--source",
        str(source),
    ]
    arguments += ["--reference", str(reference), "--samples", "40", "--device", "cpu"]
    arguments += ["--output-dir", str(tmp_path), "-o", str(tmp_path / "r.json")]
    assert evaluate.main([*arguments, "decode.alpha=0", "decode.beam_size=2"]) == Exit.OK
    texts = [(tmp_path / f"{label}.txt").read_bytes() for label in ("model", "export")]
    assert texts[0] == texts[1] and len(texts[0].split()) > 12
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert [system["longest_trained"] for system in report["systems"]] == [12, 12]
