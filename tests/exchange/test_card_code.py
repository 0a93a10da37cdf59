"""The Python on a model card gives what nmt-translate gives, where nmt cannot be imported."""

import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt.build import set_languages
from nmt.config.settings import with_decode
from nmt.decode.translator import Translator
from nmt.exchange import ctranslate2_engine, ctranslate2_write, model_card, proof
from nmt.exchange.exporting import export
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.protection import PLACEHOLDERS
from nmt.text.side import Side, segmenter_from_json
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import MarianSegmenter
from nmt.text.vocab import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary
from tests.encodings.agreement import theirs
from tests.exchange.test_ctranslate2_export import made as of_letters
from tests.exchange.test_marian_export import LINES, sentencepiece, with_symbols
from tests.exchange.test_marian_export import made as of_unigram
from tests.fast import fast_first

FEW = {"BEYOND": 15, "LONG": 1, "LONGEST": 128}
SHORT = ("decode.max_length_ratio=0.5", "decode.max_length_offset=1")
ODD = [
    "",
    " ",
    "\u00a0Der\u0000 Hund\u200b  schla\u0308ft.\t",
    "\u2581 \u00bd?!",
    "Ein 'x' & \"y\".",
]


def block(text: str) -> str:
    """The Python of a card."""
    (code,) = re.findall("^```python\n(.*?)^```", text, flags=re.S | re.M)
    return code


def without_nmt(code: str, lines: list[str], patch: pytest.MonkeyPatch) -> list[str]:
    """What the code of a card makes of lines where nmt cannot be imported."""
    names: dict[str, Any] = {}
    with patch.context() as context:
        for module in [name for name in sys.modules if name.split(".")[0] == "nmt"]:
            context.setitem(sys.modules, module, None)
        exec(code, names)
        return [names["translate"](line) for line in lines]


def translate_by_card(directory: Path, lines: list[str], patch: pytest.MonkeyPatch) -> list[str]:
    """The translations by the code on the card of a directory."""
    code = block((directory / "README.md").read_text(encoding="utf-8"))
    with patch.context() as context:
        context.chdir(directory.parent)
        return without_nmt(code, lines, patch)


def of_bpe(*words: str, tokenizer: Any = "moses") -> Trained:
    """A tiny model of single letters, merged and then cut where the vocabulary lacks a piece."""
    trained = of_letters("encoding=relative", *SHORT, *words)
    pieces = [*trained.source.vocabulary.to_json(), "ei@@", "ein", "en"]
    merges = ["e i", "ei n</w>", "e n</w>", "c h", "ch e"]
    segmenter = Bpe(Tokenizer("nfc", tokenizer, "de"), merges, pieces)
    side = Side(segmenter, Vocabulary(trained.source.vocabulary.to_json()))
    return trained._replace(source=side, target=side)


def test_exports_protect_strings_and_the_card_says_that_its_lines_do_not(tmp_path: Path) -> None:
    plain = of_bpe()
    values = plain.source.to_json(), plain.target.to_json()
    for side in values:
        side["segmenter"]["tokenizer"] |= {"symbols": [*PLACEHOLDERS], "protected": ["e."]}
        side["vocabulary"][: len(PLACEHOLDERS)] = PLACEHOLDERS
    source, target = map(Side.from_json, values)
    trained = plain._replace(source=source, target=target)
    lines = [*LINES, "<x1> eines <x2>"]
    assert all(trained.source.protection.protect(line).strings for line in lines)
    export(trained, tmp_path / "made", lines)
    assert (
        "this code translates them (`data.protected`)" in (tmp_path / "made/README.md").read_text()
    )
    model = ctranslate2_engine.load(tmp_path / "made")
    assert model.source.protection.patterns == trained.source.protection.patterns


def of_languages(*words: str) -> Trained:
    """A tiny model that is told its target language by the first word of a line."""
    trained = of_unigram("encoding=relative", *SHORT, *words)
    source = trained.source.segmenter.to_json()["model"]
    segmenter = segmenter_from_json(
        {"kind": "marian", "tokenizer": Tokenizer("none", "none", "").to_json(), "model": source}
    )
    pieces = trained.source.vocabulary.to_json()
    return trained._replace(source=Side(segmenter, Vocabulary([">>fr<<", ">>nl<<", *pieces[2:]])))


def of_one_vocabulary() -> Trained:
    """A tiny model that chooses a piece which the SentencePiece model of the target lacks."""
    trained = of_unigram("encoding=relative", *SHORT)
    pieces = trained.target.vocabulary.to_json()
    segmenter = MarianSegmenter(Tokenizer("none", "none", ""), sentencepiece(1))
    with torch.no_grad():
        trained.model.output.bias[[EOS, SPECIALS]] += torch.tensor([-3.0, 6.0])
    trained = trained._replace(target=Side(segmenter, Vocabulary(["\u2581lacht", *pieces[1:]])))
    assert all("lacht" in text for text in nmt.translate(trained, LINES))
    return trained


MODELS: dict[str, Callable[[], Trained]] = {
    "bpe": lambda: with_symbols(of_bpe()),
    "unigram": partial(
        of_unigram, "encoding=relative", *SHORT, "decode.length_penalty=power", form="nfkc"
    ),
    "languages": of_languages,
    "one vocabulary": of_one_vocabulary,
    "no tokenizer": partial(of_bpe, "decode.beam_size=1", tokenizer="none"),
    "unigram of words": lambda: with_symbols(
        of_unigram("encoding=relative", *SHORT, "decode.alpha=0", tokenizer="moses")
    ),
}


@pytest.mark.parametrize("name", fast_first(4, MODELS))
def test_the_lines_translate_as_nmt_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = MODELS[name]()
    with torch.no_grad():
        trained.model.output.bias[EOS] -= 3  # the limits cut, so that lengths tell of pieces
        trained.model.output.bias[[PAD, BOS, UNK]] = -60  # CTranslate2 has none of them
    scorer = ctranslate2_write.prepare(trained).write(tmp_path / "made", "float32")
    certificate = json.dumps({"options": dict(scorer.options)})
    (tmp_path / "made" / "certificate.json").write_text(certificate, encoding="utf-8")
    lines = [
        *LINES,
        *ODD,
        "<BT> a{a.b}. <BT>",
        *(f">>{code}<< {LINES[0]}" for code in ("fr", "nl", "xx")),
    ]
    code = model_card.write_program(trained, str(tmp_path / "made"), None)
    expected = nmt.translate(trained, lines)
    assert len(set(expected)) > 4
    assert without_nmt(code, lines, monkeypatch) == expected
    first, *_ = code.split("\n")
    needed = {*re.findall(r"^(?:from|import) (\w+)", code, re.M)} - sys.stdlib_module_names
    assert {*first.replace("-", "_").split()} == {"#", "pip", "install", *needed}


def test_the_card_of_a_model_that_is_told_its_language_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = of_languages()
    settings = with_decode(trained.settings, {"source_language": "fr", "split": "sentences"})
    sides = trained.source.vocabulary, trained.target.vocabulary
    set_languages(trained.model, settings.decode, *sides)
    trained = trained._replace(settings=settings)
    export(trained, tmp_path / "made", LINES)
    expected = nmt.translate(trained, LINES, split="lines")
    assert translate_by_card(tmp_path / "made", LINES, monkeypatch) == expected
    text = (tmp_path / "made" / "README.md").read_text(encoding="utf-8")
    assert "This code puts `>>fr<<` before each line, the language of its translation." in text
    assert 'print(translate("a line"))' in text and "The first word" not in text
    assert "translates from `de` to `fr`" in text, "a source is not in the language of the target"
    reader = Translator.of(trained, settings.decode).reader
    assert reader.splitter.language == "de"


def test_code_that_searches_says_that_nmt_translate_samples(tmp_path: Path) -> None:
    trained = of_unigram("encoding=relative", *SHORT, "decode.method=sample")
    export(trained, tmp_path / "made", LINES)
    text = (tmp_path / "made" / "README.md").read_text(encoding="utf-8")
    assert "this code searches" in text
    decode = ctranslate2_engine.load(tmp_path / "made").settings.decode
    assert decode == decode.by_beam(), "nmt-translate refuses to sample with CTranslate2"


def test_what_stands_in_the_lines_of_a_model_is_a_literal() -> None:
    name = "a\"b'c\\\n\U0001f600"
    code = model_card.write_program(of_bpe(), name, 7)
    assert code.isascii() and "min(int(0.5 * len(pieces)) + 1, 7)" in code
    (line,) = [line for line in code.split("\n") if line.startswith("directory = ")]
    names: dict[str, Any] = {"Path": str}
    exec(line, names)
    assert names["directory"] == name


def test_the_options_are_all_that_is_to_be_told(tmp_path: Path) -> None:
    def options(trained: Trained, name: str) -> Any:
        return ctranslate2_write.prepare(trained).write(tmp_path / name, "float32").options

    anew = options(of_unigram("encoding=relative"), "wu")
    wanted = {"beam_size": 4, "length_penalty": 0.6, "patience": 2, "num_hypotheses": 8}
    assert anew.items() >= wanted.items() and anew["max_decoding_length"] > 2000
    power = options(of_bpe("decode.length_penalty=power"), "power")
    assert power["num_hypotheses"] == 1 and not power["return_scores"]


def test_merges_may_be_none() -> None:
    files = model_card.list_files(of_letters("encoding=none"))
    assert sorted(files) == ["bpe.codes"] and files["bpe.codes"].startswith(b"#version: 0.2\n\xe2")


def test_those_for_transformers_normalise_and_end_as_nmt_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proof, "ROOM", 2)
    shape = ("model.tie=target", "model.share_layers=true", "model.activation=gelu")
    trained = of_unigram("encoding=absolute", *shape, *SHORT, "decode.length_penalty=power")
    lines = [*LINES, ODD[2], "Ein </s> <pad> <unk> Hund."]
    export(trained, tmp_path / "made", lines, to="marian")
    logging = theirs("transformers").logging
    logging.set_verbosity_warning()
    logging.add_handler(caplog.handler)
    caplog.clear()
    texts = translate_by_card(tmp_path / "made", lines, monkeypatch)
    logging.remove_handler(caplog.handler)
    assert not caplog.text
    assert texts == nmt.translate(trained, lines)
