"""Strings that patterns match come back as they were, in their places; lost ones are counted."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.api import score
from nmt.config.settings import Settings
from nmt.corpus.prepare import prepare
from nmt.decode.translator import Translator
from nmt.evaluation.attention import measure_coverage
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.side import Side
from tests import composing
from tests.corpus import test_prepare
from tests.decode.copying import Copying, decode, diagonal
from tests.text.test_protection import MAIL, PAIRS, SHIPPED, URL

LINES = [
    f"hund {URL} 3",
    f"({MAIL}), hund <b>dog</b> {{name}}!",
    "hund 3",
    "",
    f"{URL} {URL} 1",
    " ".join(f"{{{i}}}" for i in range(12)),
]


class Forgetful(Copying):
    """Reads some pieces as others, and copies the rest."""

    def __init__(self, side: Side, others: dict[str, str]) -> None:
        super().__init__(side.vocabulary)
        ids = side.vocabulary.ids
        self.others = {ids([a])[0]: ids([b])[0] for a, b in others.items()}

    def start(self, source: Tensor, *rest: Any) -> Any:
        changed = source.clone()
        for one, other in self.others.items():
            changed[source == one] = other
        return super().start(changed, *rest)


@pytest.fixture(scope="module", params=["bpe moses", "unigram none"])
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Side:
    kind, tokenizer = request.param.split()
    characters = "(,)!.{}:/@-_?=0123456789abcdefghijklmnopqrstuvwxyzD"
    known = [(" ".join(characters), f"{characters} {characters[::-1]}")] * 3
    data = test_prepare.corpus(
        tmp_path_factory.mktemp("text"), [*PAIRS, *known], protected=SHIPPED, max_length=150
    )
    learned: Any = test_prepare.BPE if kind == "bpe" else test_prepare.UNIGRAM
    more = {"vocabulary_size": 70} if kind == "unigram" else {}
    return prepare(
        data, replace(learned, tokenizer=tokenizer, shared_vocabulary=True, **more)
    ).source


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.WARNING, "nmt.decode"):
        yield lambda: [r.getMessage() for r in caplog.records]


def copying(side: Side, others: dict[str, str] | None = None) -> Trained:
    model = cast(Any, Forgetful(side, others or {}).eval())
    return Trained(composing.settings_of(), model, side, side, {"longest_source": None})


def test_strings_come_back_in_their_places(side: Side, log: Callable[[], list[str]]) -> None:
    translator = Translator.of(copying(side), decode())
    assert translator.texts(LINES[:5]) == LINES[:5]
    (last,) = translator.texts(LINES[5:])
    assert last.startswith(" ".join(f"{{{i}}}" for i in range(9)))  # the others are text
    best, second = next(translator.translate([LINES[0]], 2))
    assert best.text == LINES[0] and URL in second.text
    assert not log()


def test_lost_strings_are_counted_and_made_up_ones_dropped(
    side: Side, log: Callable[[], list[str]]
) -> None:
    """The model reads `<x2>` as `<x9>`, of which there is no string."""
    translator = Translator.of(copying(side, {"<x2>": "<x9>"}), decode(window=2))
    assert translator.texts(["hund 3", f"{URL} hund {MAIL} {MAIL} 1", f"{MAIL} {URL}"]) == [
        "hund 3",
        f"{URL} hund 1",
        MAIL,
    ]
    assert log() == ["protected strings lost: 3 (first: line 2)"]


@pytest.mark.parametrize(
    "options",
    [{"split": "sentences"}, {"too_long": "truncate", "max_source": 4}, {"window": 1, "mbr": 2}],
)
def test_what_the_best_translation_of_a_line_lacks_is_counted(
    side: Side, log: Callable[[], list[str]], options: dict[str, Any]
) -> None:
    lines = ["hund 3", f"{URL} dog. Dog {MAIL} {{a}}. {MAIL} {URL} {{b}}", f"{MAIL} {MAIL}", URL]
    found = Translator.of(copying(side, {"<x2>": "<x9>"}), decode(**options)).translate(lines, 2)
    texts = [best.text for best, *_ in found]
    lost = [
        sum(line.count(string) - text.count(string) for string in (URL, MAIL, "{a}", "{b}"))
        for line, text in zip(lines, texts, strict=True)
    ]
    assert lost[1] > 0 == lost[2]
    assert log()[-1] == f"protected strings lost: {sum(lost)} (first: line 2)"


def test_each_part_of_a_line_has_its_own(side: Side, log: Callable[[], list[str]]) -> None:
    strings = [f"{{n{i}}}" for i in range(12)]
    options = decode(too_long="split", max_source=6)
    assert Translator.of(copying(side), options).texts([" ".join(strings)]) == [" ".join(strings)]
    assert len(log()) == 1 and "translated in parts: 1" in log()[0]
    text = "Dog {a} {b} {c} {d} {e}! Dog {f} {g} {h} {i} {j} {k}!"  # eleven in all
    translator = Translator.of(copying(side), decode(split="sentences"))
    (best,) = next(translator.translate([text]))
    pieces = side.vocabulary.pieces(best.ids)
    assert best.text == text and pieces.count("<x5>") == 2 and "<x7>" not in pieces


@pytest.mark.parametrize("most", [2, 6])
def test_parts_at_spaces_do_not_cut_strings(side: Side, most: int) -> None:
    """However many characters they have: each is a piece."""
    strings = [URL + "a" * 300, '<b a="1 2 3 4 5 6 7 8 9" b="1 2 3">', "{a}"]
    text = " ".join(f"1 2 3 4 5 {string} 1 2 3 4" for string in strings)
    (best,) = next(
        Translator.of(copying(side), decode(too_long="split", max_source=most)).translate([text])
    )
    pieces = side.vocabulary.pieces(best.ids)
    assert best.text == text and sum(piece.startswith("<x") for piece in pieces) == len(strings)


def test_no_sentence_ends_within_a_string(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side.protection, "patterns", [re.compile(r"dog\. Dog")])
    translator, text = Translator.of(copying(side), decode(split="sentences")), "dog. Dog 1. Dog 2."
    assert translator.reader.splitter.groups(text, None) == ["dog. Dog 1.", "Dog 2."]
    (best,) = next(translator.translate([text]))
    assert best.text == text and "<x1>" in side.vocabulary.pieces(best.ids)


def test_a_model_without_patterns_is_left_alone(tmp_path: Path) -> None:
    """Its text may have what is a placeholder elsewhere."""
    line = "hund 3 <x1> <x7>"
    some = prepare(test_prepare.corpus(tmp_path, user_symbols=["<x1>", "<x7>"]), test_prepare.BPE)
    translator = Translator.of(copying(some.source), decode())
    assert translator.texts([line]) == [line]


def test_pairs_are_scored_as_they_were_trained_on(
    side: Side, tiny: Callable[..., Transformer], settings_of: Callable[..., Settings]
) -> None:
    model = tiny("encoding=relative", vocab=len(side.vocabulary))
    trained = Trained(settings_of("encoding=relative"), model, side, side, {"longest_source": 30})
    sources, targets = [f"hund {URL} {MAIL}"], [f"{MAIL} hund {{name}}"]
    with torch.inference_mode():
        (given,) = score(trained, sources, targets)
    assert given.pieces.count("<x1>") == 1 and "<x2>" not in given.pieces
    (covered,) = measure_coverage(trained, sources, targets)
    text, _ = side.protection.protect_pair(sources[0], targets[0])
    assert "<x1>" in text and len(covered) == len(side.segmenter.encode(text))


def test_words_with_strings_are_aligned(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.decode.alignment.SequenceMatcher", None)  # no guess is needed
    spaced = f"hund {{a b}} {URL}, 3"  # a string of two words
    lines = [*LINES[:5], spaced]
    translator = diagonal(copying(side), decode(split="sentences"))
    found = [best for best, *_ in translator.translate(lines, align=True)]
    given = diagonal(copying(side), decode()).align(lines, lines)
    for line, best, one in zip(lines, found, given, strict=True):
        assert best.text == line and best.alignment is not None
        for alignment in (best.alignment, one):
            assert alignment.pairs == [(i, i) for i in range(len(line.split()))]
