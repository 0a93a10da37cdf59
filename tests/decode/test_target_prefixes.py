"""Translations begin as they must, with the probability that the model gives to the whole."""

from typing import Any

import pytest

from nmt import api
from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, RefusedLinesError
from nmt.modeldir import Trained
from tests.decode.copying import decode

LINES = ["w3 w1 w4", "w2", "", "w1 w5 w9 w2 w6 w5", "w3", "w5 w8 w9 w7 w9"]
PREFIXES = ["w7 w7", "", "", "w1 w30 w2", "w31", ""]


def translations(
    some: Trained, prefixes: list[str] | None = PREFIXES, n_best: int = 1, **changes: Any
) -> list[list[Translation]]:
    options = decode(**{"max_length_ratio": 1.0, "max_length_offset": 6, **changes})
    return list(Translator.of(some, options).translate(LINES, n_best, prefixes=prefixes))


WAYS: list[dict[str, Any]] = [{"beam_size": 4}, {"method": "sample"}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_line_begins_as_it_must_whatever_the_batches(
    whole: Trained, way: dict[str, Any]
) -> None:
    found = translations(whole, n_best=3, **way)
    for prefix, translated in zip(PREFIXES, found, strict=True):
        assert all(t.text.startswith(prefix) for t in translated)
    free = translations(whole, None, 3, **way)
    pairs = list(zip(PREFIXES, found, free, strict=True))
    assert all([t.text for t in some] == [t.text for t in same] for p, some, same in pairs if not p)
    assert not any(some[0].text == same[0].text for prefix, some, same in pairs if prefix)
    other = translations(whole, n_best=3, **way, batch_tokens=1, window=2)
    assert [[t.text for t in some] for some in other] == [[t.text for t in some] for some in found]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_score_is_that_of_the_whole_translation(whole: Trained, way: dict[str, Any]) -> None:
    found = translations(whole, alpha=0.0, **way)
    some = [
        (line, best)
        for line, (best,) in zip(LINES, found, strict=True)
        if whole.target.ids(best.text)[:-1] == list(best.ids) and line
    ]
    scored = api.score(whole, [line for line, _ in some], [best.text for _, best in some])
    assert {dict(zip(LINES, PREFIXES, strict=True))[line] for line, _ in some} & {"w7 w7", "w31"}
    for (_, best), exact in zip(some, scored, strict=True):
        log_probs = exact.log_probs if best.finished else exact.log_probs[:-1]
        assert best.score == pytest.approx(sum(log_probs), abs=1e-4)


@pytest.mark.parametrize(
    ("number", "prefix"),
    [
        (3, "w1"),  # of an empty line
        (2, "w1 what"),  # the model does not know the piece
        (2, "w1 " * 8),  # 8 pieces, but the translation may have 7
    ],
)
def test_what_cannot_begin_costs_its_own_line_alone(
    whole: Trained, number: int, prefix: str
) -> None:
    prefixes = ["w1", "", "", "", "", "w1 who"]  # the last is unknown, too
    prefixes[number - 1] = prefix
    some = Translator.of(whole, decode(max_length_ratio=1.0, max_length_offset=6, window=2))
    found = some.translate(LINES, prefixes=prefixes)
    texts = [next(found)[0].text for _ in LINES]
    with pytest.raises(RefusedLinesError) as error:
        next(found)
    assert error.value.code == Exit.DATA
    assert f"their lines left empty: 2 (first: line {number})" in str(error.value)
    unfit = {number, 6}
    fit = ["" if n in unfit else p for n, p in enumerate(prefixes, 1)]
    right = translations(whole, fit)
    assert texts == ["" if n in unfit else t.text for n, (t,) in enumerate(right, 1)]


def test_a_line_that_must_be_split_has_no_beginning(whole: Trained) -> None:
    some = Translator.of(whole, decode(max_source=3, too_long="split"))
    assert all(text for text, line in zip(some.texts(LINES), LINES, strict=True) if line)
    found = some.translate(LINES, prefixes=["", "", "", "w1", "", ""])
    assert next(found)[0].text and [next(found)[0].text for _ in range(5)][2] == ""
    with pytest.raises(
        RefusedLinesError, match=r"1 \(first: line 4; .*; split them, together with their"
    ):
        next(found)
