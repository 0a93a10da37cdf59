"""A source that is too long: translated in parts, left empty or cut; all other lines as ever."""

import pytest

from nmt.decode.engine import length_penalty
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


@pytest.mark.parametrize(
    ("too_long", "cut", "said"),
    [
        ("split", slice(None), "translated in parts: 2 (first: line 3; longest: 7 pieces)"),
        ("truncate", slice(3), "cut: 2 (first: line 3; longest: 7 pieces)"),
    ],
)
def test_split_into_parts_or_cut(
    too_long: str, cut: slice, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    translator = Translator.of(limited(), decode(too_long=too_long, window=2))
    assert translator.texts(LINES) == [" ".join(line.split()[cut]) for line in LINES]
    assert max(width for _, width in model_of(translator).batches) == 4
    (message,) = caplog.messages
    assert message.endswith(said)


def test_refused_with_its_number_while_the_rest_is_translated() -> None:
    found = Translator.of(limited(), decode(too_long="refuse", window=2)).translate(LINES)
    assert [next(found)[0].text for _ in LINES] == ["w1 w2 w3", "", "", "w9", ""]
    with pytest.raises(
        RefusedLinesError, match=r"left empty: 2 \(first: line 3; longest: 7"
    ) as error:
        next(found)
    assert error.value.code == Exit.DATA


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


@pytest.mark.parametrize(
    ("text", "most", "parts"),
    [
        ("ab cd ef", 5, ["ab", "cd", "ef"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("a  b", 1, ["a", "b"]),
        ("", 1, [""]),
    ],
)
def test_parts_hold_all_of_the_text(text: str, most: int, parts: list[str]) -> None:
    assert Splitter(None, set(), len).at_spaces(text, most) == parts
