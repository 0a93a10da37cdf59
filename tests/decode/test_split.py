"""Lines that are translated in parts, by sentences or at spaces, and put together again."""

import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.data import Corpus
from nmt.decode import split
from nmt.decode.lines import Line
from nmt.decode.notes import Notes
from nmt.decode.split import Splitter, separator
from nmt.decode.translator import Translator
from nmt.errors import Exit, RefusedLinesError, UserError
from nmt.modeldir import Trained
from nmt.text.side import Side
from nmt.text.vocab import Vocabulary
from tests.composing import settings_of
from tests.decode.copying import decode, model_of, trained

PARAGRAPH = "Dr. Ohm kam z.B. heute. Er ging.  Sie blieb um 3.30 Uhr hier! Ja?"
SENTENCES = ["Dr. Ohm kam z.B. heute.", "Er ging.", "Sie blieb um 3.30 Uhr hier!", "Ja?"]


def words(text: str) -> int:
    return len(text.split())


def splitter(*tags: str, language: str = "de") -> Splitter:
    return Splitter(language, {*tags}, words)


@pytest.mark.parametrize(
    ("most", "sizes"), [(13, [3, 1]), (7, [2, 2]), (6, [1] * 4), (None, [1] * 4)]
)
def test_as_many_together_as_fit(most: int | None, sizes: list[int]) -> None:
    groups = splitter().groups(PARAGRAPH, most)
    places = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    expected = [" ".join(SENTENCES[a:b]) for a, b in pairwise(places)]
    assert [" ".join(group.split()) for group in groups] == expected
    assert all(group in PARAGRAPH for group in groups)  # as they stood
    assert splitter().groups(PARAGRAPH, 14) == [PARAGRAPH]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Die Frau liest einen Brief ... ...", "Die Frau lacht."]),
        ("de", ["1. Die Frau liest einen Brief.", "2. Die Frau lacht.", "3. Der Mann geht."]),
        ("de", ["Siehe Nr. 5.", "Dann kam er.", "Siehe Nr. 3.", "Sie ging."]),  # no list
        (
            "en",
            ["He came … She left. ...", "And?", "(i) One.", "ii. Two.", "A. Three.", "IV. Four."],
        ),
        ("en", ["Is it so?", "Yes.", "• 1a) So it is. ! ?", "* * * Fine. 😀"]),
        ("ru", ["1. Он пришёл.", "2. Она ушла.", "а) Да."]),  # noqa: RUF001
        ("fr", ["1. Il vient.", "*** Elle part.", "Non."]),
    ],
)
def test_markers_and_signs_are_no_sentences(language: str, sentences: list[str]) -> None:
    assert splitter(language=language).groups(" ".join(sentences), None) == sentences


SIGNS = "1. 2. 3) (4) a) b. IV. ii. 1.2. 12. ... … ! ?! ” » \u2013 • *** 😀 “ ( Ja. 我走了。"
FRAGMENTS = [*SIGNS.split(), "* * *", "Er ging.", "Die Frau lacht!", "Siehe Nr.", "\u00a0", "\t"]
MARKERS = {"a)", "b.", "IV.", "ii."}


@given(
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=8),
    st.sampled_from(["de", "zh"]),
)
def test_each_part_has_a_letter_and_all_are_the_line(fragments: list[str], language: str) -> None:
    line = " ".join(fragments)
    parts = splitter(language=language).groups(line, None)
    assert len(parts) == 1 or all(any(map(str.isalpha, part)) for part in parts)
    assert len(parts) == 1 or not MARKERS & {*parts}
    assert "".join("".join(parts).split()) == "".join(line.split())
    end = 0
    for part in parts:  # as they stand, with nothing but spaces between
        start = line.index(part, end)
        assert not line[end:start].strip()
        end = start + len(part)


def test_what_stands_before_the_text_is_said_of_each_group() -> None:
    text = "Er ging. Sie blieb."
    tagged = [">>en<< Er ging.", ">>en<< Sie blieb."]
    for front in (">>en<< ", " >>en<< ", ">>en<<", "\u00a0>>en<<\t"):  # each reads as that piece
        assert splitter(">>en<<").groups(f"{front}{text}", None) == tagged
    quote = ">>Er ging<<, sagte sie."  # of a model that knows no such piece
    assert splitter().groups(f"{quote} Ja.", None) == [quote, "Ja."]
    assert splitter("<BT>").groups(f"<BT> {text}", None) == ["<BT> Er ging.", "<BT> Sie blieb."]
    assert splitter("<BT>").groups(f"<BT> {text}", 3) == ["<BT> Er ging.", "<BT> Sie blieb."]
    assert splitter("<BT>").groups(f"<BT> {text}", 5) == [f"<BT> {text}"]
    assert splitter().groups("<BT> Er ging. Ja.", None) == ["<BT> Er ging.", "Ja."]  # no tag of it


@pytest.mark.parametrize("language", ["deu_Latn", "__de__", "de-AT"])
def test_languages_have_their_rules_by_any_name(language: str) -> None:
    groups = splitter(language=language).groups("Am 3. Mai kam er. Sie ging.", None)
    assert groups == ["Am 3. Mai kam er.", "Sie ging."]


def test_languages_without_spaces() -> None:
    chinese = Splitter("zh", set(), len)
    assert chinese.groups("你好。我叫小明!好的。", 8) == ["你好。我叫小明!", "好的。"]
    assert splitter(language="zh").groups("你好。我叫小明!好的。", None) == [
        "你好。", "我叫小明!", "好的。",
    ]  # fmt: skip
    for language in ("zh", "ja", "zh-TW", "zho_Hans", "tha_Thai", "__ja__"):
        assert separator(language) == ""
    for language in ("de", "en", "ko", "deu_Latn", "zza"):
        assert separator(language) == " "


def copying(target: str = "en", longest: int | None = 4, **data: Any) -> Trained:
    some = trained(longest)
    changed = replace(some.settings.data, source_language="en", target_language=target, **data)
    return some._replace(settings=replace(some.settings, data=changed))


def parts_of(model: Trained, text: str, **changes: Any) -> list[str]:
    """What a line is translated as; its words are pieces, and a full stop ends a sentence."""
    line = Line(1, text, {}, "")
    Translator.of(model, decode(**changes)).reader.read(line, Notes())
    return [source.text for source in line.parts]


def test_a_line_is_translated_whole_by_sentences_or_in_parts() -> None:
    long, short = "w6 w7 w8 w9 w1 w2 . W3 .", "w5 . W6 ."
    sentences = ["w6 w7 w8 w9 w1 w2 .", "W3 ."]
    for kind, of_long, of_short in (
        ("lines", [long], [short]),
        ("sentences", sentences, ["w5 .", "W6 ."]),
        ("auto", sentences, [short]),  # as training had it
    ):
        assert parts_of(copying(), long, split=kind) == of_long
        assert parts_of(copying(), short, split=kind) == of_short
    model = copying()
    model.model.source_limit = 6  # type: ignore[misc]
    in_parts = parts_of(model, "w1 w2 w3 w4 w5 w6 w7 . W8 .", split="sentences", too_long="split")
    assert in_parts == ["w1 w2 w3 w4", "w5 w6 w7 .", "W8 ."]


@pytest.mark.parametrize("align", [False, True])
def test_a_refused_sentence_leaves_its_whole_line_empty(whole: Trained, align: bool) -> None:
    """And counts once, whether sentences that fit stand before or behind."""
    lines = ["w1 . W2 w3 w4 w5 . W6 w7 w8 w9 w1 .", "w1 w2 w3 w4 . W5 .", "w6 . W7 ."]
    translator, notes = Translator.of(whole, decode(split="sentences", max_source=3)), Notes()
    found = translator.translate(lines, notes=notes, align=align)
    assert [bool(best.text) for best, *_ in (next(found) for _ in lines)] == [False, False, True]
    with pytest.raises(RefusedLinesError, match=r"left empty: 2 \(first: line 1; longest: 5 "):
        next(found)
    assert notes.counts["refused"][0] == 2 and notes.counts["sentences"][0] == 1


def test_the_tags_of_the_corpora_are_known() -> None:
    model = copying()
    files = settings_of("data=files", "data.root=x").data
    corpus = Corpus(None, "a", "b", "c", "d", 1.0, "<de>")
    tagged = replace(files, corpora={"de": corpus})
    model = model._replace(settings=replace(model.settings, data=tagged))
    reader = Translator.of(model, decode(split="sentences")).reader
    assert reader.splitter.tags == {"<de>"} and "<de>" in reader.codes
    known = Side(model.source.segmenter, Vocabulary([">>fr<<", "w1"]))  # an imported one
    reader = Translator.of(model._replace(source=known, target=known), decode()).reader
    assert reader.splitter.tags == {"<de>", ">>fr<<"}


def test_lines_are_whole_with_columns_prefixes_and_lengths() -> None:
    translator = Translator.of(copying(), decode(split="auto"))
    with pytest.raises(UserError, match=r"decode.split=auto: not with target prefixes, which"):
        next(translator.translate(["w1"], prefixes=["w1"]))
    with pytest.raises(UserError, match=r"decode.split=sentences: not with given lengths"):
        decode(split="sentences", length="forced")
    model = copying()
    model.model.columns = {"heads"}  # type: ignore[misc]
    columns = {"heads": ["0"]}
    with pytest.raises(UserError, match=r"decode.split=auto: not with columns, which"):
        next(Translator.of(model, decode(split="auto")).translate(["w1"], columns=columns))


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "sentencex", raising=False)
    monkeypatch.setattr(split, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"sentencex is not inst.*toolkit\[sentences\]") as error:
        Translator.of(copying(), decode(split="auto"))
    assert error.value.code == Exit.UNAVAILABLE
    Translator.of(copying(), decode())


def test_two_hundred_paragraphs_come_back_line_by_line() -> None:
    """No word is lost, none is added, and each stands on its line."""
    lines = [
        " ".join(f"w{1 + (i * j) % 30}" + "." * (j % 5 == 4) for j in range(i % 41))
        for i in range(200)
    ]
    model = copying(longest=8)
    vocabulary = type(model.source.vocabulary)(
        [f"w{i}{dot}" for i in range(40) for dot in ("", ".")] + ["endless", "nan"]
    )
    side = type(model.source)(model.source.segmenter, vocabulary)
    model = model._replace(source=side, target=side)
    model_of(Translator.of(model, decode())).vocabulary = vocabulary
    notes = Notes()
    translator = Translator.of(model, decode(split="auto", window=70, beam_size=1))
    found = translator.translate(lines, notes=notes)
    assert [best.text for best, *_ in found] == lines
    assert notes.counts["sentences"][0] > 100
