"""A source that is too long: translated in parts, left empty or cut; all other lines as ever."""

import pytest

from nmt.decode.engine import length_penalty
from nmt.decode.sources import Notes
from nmt.decode.split import Splitter
from nmt.decode.translator import Translator
from nmt.errors import Exit, RefusedLinesError
from nmt.modeldir import USUAL_LENGTH, Trained
from tests.decode.copying import decode, model_of, trained

LINES = ["w1 w2 w3", "", "w1 w2 w3 w4 w5 w6 w7", "w9", "w1 w2 w3 w4"]


def limited(longest_source: int | None = 30) -> Trained:
    """A model whose table holds three pieces and eos."""
    some = trained(longest_source)
    some.model.source_limit = 4  # type: ignore[misc]
    return some


def test_split_into_parts_that_are_said(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator.of(limited(), decode(too_long="split", window=2))
    assert translator.texts(LINES) == LINES
    assert max(width for _, width in model_of(translator).batches) == 4
    assert [r.getMessage() for r in caplog.records] == [
        "sources of more than 3 pieces (decode.max_source, position table), translated "
        "in parts: 2 (first: line 3; longest: 7 pieces)"
    ]


def test_parts_are_no_longer_than_what_was_trained() -> None:
    translator = Translator.of(limited(longest_source=2), decode(too_long="split", batch_tokens=1))
    assert translator.texts(LINES) == LINES
    lengths = [width - 1 for _, width in model_of(translator).batches]
    assert sorted({*lengths}) == [1, 2, 3]  # 3: the line that fits is left whole


def test_an_unknown_trained_length_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Such a model came from elsewhere; its parts are of a usual length."""
    line = " ".join(f"w{1 + i % 9}" for i in range(350))
    some = trained(longest_source=None)
    assert Translator.of(some, decode(batch_tokens=1)).texts([line]) == [line]
    assert not caplog.records
    some = trained(longest_source=None)
    some.model.source_limit = 301  # type: ignore[misc]
    translator = Translator.of(some, decode(too_long="split", batch_tokens=1))
    assert translator.texts([line]) == [line]
    assert max(width - 1 for _, width in model_of(translator).batches) <= USUAL_LENGTH


def test_lines_of_unknown_pieces_alone_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["w1 中文", "中文 。", "", "w1", "http://example.org/?b=c"]
    notes = Notes()
    list(Translator.of(trained(), decode(window=2)).translate(lines, notes=notes))
    assert notes.counts["unknown"][:2] == [2, 2]
    assert len(caplog.records) == 1 and "unknown pieces alone: 2 " in caplog.text


def test_parts_share_a_score() -> None:
    """The sum of the log-probabilities over the penalty of the sum of the lengths."""
    some = limited()
    options = decode(too_long="split", alpha=0.6)
    first, second, whole = (
        found[0].score
        for found in Translator.of(some, options).translate(["w1 w2", "w3 w4", "w1 w2 w3 w4"])
    )
    log_prob = (first + second) * length_penalty(3, 0.6)
    assert whole == pytest.approx(log_prob / length_penalty(6, 0.6))


def test_refused_with_its_number_while_the_rest_is_translated() -> None:
    found = Translator.of(limited(), decode(too_long="refuse", window=2)).translate(LINES)
    assert [next(found)[0].text for _ in LINES] == ["w1 w2 w3", "", "", "w9", ""]
    with pytest.raises(RefusedLinesError) as error:
        next(found)
    assert str(error.value) == (
        "sources of more than 3 pieces (decode.max_source, position table), their lines "
        "left empty: 2 (first: line 3; longest: 7 pieces); split them, together with their columns "
        "and target prefixes, or choose decode.too_long=split"
    )
    assert error.value.code == Exit.DATA


def test_or_cut_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    translator = Translator.of(limited(), decode(too_long="truncate", window=2))
    assert translator.texts(LINES) == ["w1 w2 w3", "", "w1 w2 w3", "w9", "w1 w2 w3"]
    assert [r.getMessage() for r in caplog.records] == [
        "sources of more than 3 pieces (decode.max_source, position table), cut: "
        "2 (first: line 3; longest: 7 pieces)"
    ]


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        ("ab cd ef", 8, ["ab cd ef"]),
        ("ab cd ef", 5, ["ab", "cd", "ef"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("a  b", 1, ["a", "b"]),
        ("x" * 100, 1, ["x"] * 100),
        ("", 1, [""]),
    ],
)
def test_parts_hold_all_of_the_text(text: str, most: int, parts: list[str]) -> None:
    assert Splitter(None, set(), len).at_spaces(text, most) == parts


def test_the_longest_source_is_a_setting() -> None:
    some = Translator.of(trained(), decode(too_long="truncate", max_source=2))
    assert some.texts(["w1 w2 w3", "w1"]) == ["w1 w2", "w1"]
    assert Translator.of(limited(), decode(max_source=2)).reader.longest == 2
    assert Translator.of(limited(), decode(max_source=9)).reader.longest == 3
