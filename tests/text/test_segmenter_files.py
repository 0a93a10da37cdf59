"""Segmenters of the user's own files: the pieces of the libraries that wrote them, and refusals."""

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from nmt import modeldir
from nmt.config.data import Segmentation
from nmt.corpus.prepare import prepare
from nmt.errors import Exit, UserError
from nmt.text.segmenter_files import sides_of_files
from nmt.text.side import Side
from nmt.text.vocab import UNK
from nmt.training import corpus
from tests.corpus import test_prepare
from tests.training import tiny

LINES = [*(line for pair in test_prepare.TRAIN for line in pair), "Größe und Straße", "a  b"]


def spm_model(path: Path, lines: Iterable[str] = LINES, **options: Any) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, minloglevel=3, **options
    )
    path.write_bytes(model.getvalue())
    return path


def codes_and_vocabulary(folder: Path) -> tuple[Path, Path]:
    """As subword-nmt learn-bpe and get-vocab write them."""
    text, codes = "\n".join(LINES), folder / "codes"
    with codes.open("w", encoding="utf-8") as out:
        learn_bpe(io.StringIO(text), out, 30)
    pieces = Counter(BPE(codes.open(encoding="utf-8")).process_line(text).split())
    vocabulary = folder / "vocabulary"
    vocabulary.write_text("".join(f"{p} {n}\n" for p, n in pieces.most_common()), encoding="utf-8")
    return codes, vocabulary


def spm(path: Path, tokenizer: Any = "none") -> Segmentation:
    return Segmentation("spm", tokenizer, source_model=str(path))


def bpe(codes: Path, vocabulary: Path, minimum: int = 0, tokenizer: Any = "none") -> Segmentation:
    return Segmentation(
        *("codes", tokenizer), min_frequency=minimum, codes=str(codes),
        source_vocabulary=str(vocabulary),
    )  # fmt: skip


def pieces_of(side: Side, line: str) -> list[str]:
    return side.vocabulary.pieces(side.ids(line))


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "unigram", "vocab_size": 36},
        {"model_type": "bpe", "vocab_size": 60},
        {"model_type": "bpe", "vocab_size": 320, "byte_fallback": True, "character_coverage": 0.98},
    ],
    ids=str,
)
def test_pieces_are_those_of_the_sentencepiece_model(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = spm_model(tmp_path / "spm.model", **options)
    data = test_prepare.corpus(tmp_path)
    side, other = sides_of_files(data, spm(path))
    assert side.vocabulary.to_json() == other.vocabulary.to_json()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    symbols = {processor.id_to_piece(i) for i in range(3)}  # <unk>, <s>, </s>
    assert not symbols & set(side.vocabulary.to_json())
    for line in LINES:
        assert pieces_of(side, line) == processor.encode(line, out_type=str)
        assert side.text(side.ids(line)) == " ".join(line.split())


def test_bytes_become_characters_and_what_looks_like_a_language_is_text(tmp_path: Path) -> None:
    options: dict[str, Any] = {"vocab_size": 320, "byte_fallback": True, "character_coverage": 0.98}
    path = spm_model(tmp_path / "spm.model", model_type="bpe", **options)
    side, _ = sides_of_files(test_prepare.corpus(tmp_path), spm(path))
    again = Side.from_json(side.to_json())
    for line in (">>Größe<< und \u2713", ">> Straße <<"):
        assert UNK not in side.ids(line) and side.text(side.ids(line)) == line
        assert again.ids(line) == side.ids(line) and again.text(side.ids(line)) == line


@pytest.mark.parametrize("minimum", [0, 20])
def test_pieces_are_those_of_subword_nmt(minimum: int, tmp_path: Path) -> None:
    codes, vocabulary = codes_and_vocabulary(tmp_path)
    side, _ = sides_of_files(test_prepare.corpus(tmp_path), bpe(codes, vocabulary, minimum))
    counted = [line.split() for line in vocabulary.read_text(encoding="utf-8").splitlines()]
    kept = {piece for piece, count in counted if int(count) >= minimum}
    assert set(side.vocabulary.to_json()) == kept
    reference = BPE(codes.open(encoding="utf-8"), vocab=kept)
    for line in LINES:
        words = " ".join(line.split())
        expected = [p if p in kept else "<unk>" for p in reference.process_line(words).split()]
        assert pieces_of(side, line) == expected


def test_a_corpus_is_the_same_wherever_the_files_lie(tmp_path: Path) -> None:
    path, other = tmp_path / "spm.model", tmp_path / "elsewhere.model"
    spm_model(path, model_type="unigram", vocab_size=36)
    other.write_bytes(path.read_bytes())
    data = test_prepare.corpus(tmp_path)
    made = [prepare(data, spm(each), sides_of_files(data, spm(each))) for each in (path, other)]
    assert made[0].path == made[1].path
    spm_model(other, model_type="unigram", vocab_size=33)
    changed = prepare(data, spm(other), sides_of_files(data, spm(other)))
    assert changed.path != made[0].path
    assert len(changed.source.vocabulary) < len(made[0].source.vocabulary)


def test_a_run_goes_on_without_the_files(tmp_path: Path) -> None:
    path = spm_model(tmp_path / "spm.model", model_type="unigram", vocab_size=36)
    settings = replace(
        tiny.settings(trainer__max_steps=2), data=test_prepare.corpus(tmp_path), segmenter=spm(path)
    )
    prepared = corpus.prepare(settings)
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "settings", lambda **_: settings)
        tiny.train(run, prepared)
    before = corpus.fingerprint(settings)
    assert corpus.fingerprint(settings, run) == before
    model = path.read_bytes()
    spm_model(path, model_type="unigram", vocab_size=33)
    assert corpus.fingerprint(settings, run) != before, "other text is told"
    path.write_bytes(model)
    path.unlink()
    assert corpus.prepare(settings, run).path == prepared.path
    assert modeldir.load(run).source.to_json() == prepared.source.to_json()
    with pytest.raises(UserError, match=r"source_model=.*: No such file") as error:
        corpus.prepare(settings)
    assert error.value.code == Exit.NO_INPUT


def test_a_segmenter_that_cannot_sample_is_refused(tmp_path: Path) -> None:
    path = spm_model(tmp_path / "spm.model", vocab_size=36, model_type="bpe")
    data = test_prepare.corpus(tmp_path, subword_alpha=0.1)
    with pytest.raises(UserError, match=r"source: its .* is no unigram model") as error:
        prepare(data, spm(path), sides_of_files(data, spm(path)))
    assert error.value.code == Exit.USAGE
    settings = replace(tiny.settings(), data=replace(data, subword_alpha=None, bpe_dropout=0.1))
    with pytest.raises(UserError, match=r"segmenter\.kind=unigram has none"):
        corpus.prepare(replace(settings, segmenter=spm(path)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("codes", "a b\n", r"codes:1: expected '#version: 0.2'"),
        ("codes", "#version: 0.2\na b\nabc\n", "codes:3: expected two symbols"),
        ("vocabulary", "a@@ 3\na@@ 2\n", "vocabulary:2: expected a piece that no line before has"),
        ("vocabulary", "a@@\n", r"vocabulary:1: has no count; set segmenter.min_frequency=0"),
        ("vocabulary", "", "vocabulary: no piece occurs 1 times"),
        ("spm.model", "", "source_model=.*: no SentencePiece model"),
    ],
)
def test_other_files_are_refused(name: str, content: str, message: str, tmp_path: Path) -> None:
    codes, vocabulary = codes_and_vocabulary(tmp_path)
    (tmp_path / name).write_text(content)
    choice = spm(tmp_path / name) if name == "spm.model" else bpe(codes, vocabulary, 1)
    with pytest.raises(UserError, match=message) as error:
        sides_of_files(test_prepare.corpus(tmp_path), choice)
    assert error.value.code == Exit.DATA
