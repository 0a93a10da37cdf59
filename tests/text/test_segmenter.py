"""Segmenters lose nothing, agree with the tools they stand on, and survive hostile files."""

import json
import random
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.corpus.learn import count_pieces, learn_merges
from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.side import Segmenter, segmenter_from_json
from nmt.text.tokenizer import Tokenizer, normalise
from nmt.text.unigram import Unigram, learn_model

WORDS = "der die das hund katze hunde katzen läuft laufen laufend @@ a@@ x@@y 'n' schnell schneller"
LINES = [" ".join(random.Random(i).choices(WORDS.split(), k=9)) for i in range(300)]
ODD = "@ \u2581\u2585<>unk/s'\"&[]\r\u2028\x85\u00a0\u200b\u200dé\u0301ﬁaderhtundK€中文👩"
TEXT = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec="utf-8")))


def learn_counts(lines: list[str]) -> Counter[str]:
    return Counter(word for line in lines for word in line.split(" "))


@cache
def bpe(tokenizer: Any = "none", filtered: bool = True) -> Bpe:
    counts = learn_counts(LINES)
    merges, _ = learn_merges(counts, 60, 2)
    pieces = sorted(count_pieces(counts, merges)) if filtered else []
    return Bpe(Tokenizer("nfc", tokenizer, "de"), merges, pieces)


@cache
def unigram(tokenizer: Any = "none") -> Unigram:
    return Unigram(Tokenizer("nfc", tokenizer, "de"), learn_model(LINES, 60, 0.9995))


MAKERS = [bpe, unigram, lambda: bpe("moses"), lambda: unigram("moses"), lambda: bpe("none", False)]


@pytest.mark.parametrize("make", [bpe, unigram, lambda: bpe("none", False)])
@given(text=TEXT)
def test_nothing_is_lost(make: Callable[[], Segmenter], text: str) -> None:
    segmenter = make()
    assert segmenter.decode(segmenter.encode(text)) == normalise(text)


@pytest.mark.parametrize("make", MAKERS)
@given(text=TEXT)
def test_one_line_whatever_comes_and_one_spelling(make: Callable[[], Segmenter], text: str) -> None:
    segmenter = make()
    composed, decomposed = (unicodedata.normalize(f, text) for f in ("NFC", "NFD"))
    pieces = segmenter.encode(composed)
    assert pieces == segmenter.encode(decomposed)
    assert all(piece.split() == [piece] for piece in pieces)
    line = segmenter.decode(pieces)
    assert "\n" not in line and " ".join(line.split()) == line


@pytest.mark.parametrize("make", MAKERS)
def test_empty_and_rebuilt(make: Callable[[], Segmenter]) -> None:
    segmenter = make()
    assert segmenter.encode("") == segmenter.encode(" \u2028\r") == []
    assert segmenter.decode([]) == ""
    again = segmenter_from_json(json.loads(json.dumps(segmenter.to_json())))
    assert again.to_json() == segmenter.to_json()
    for line in [*LINES[:50], "Unbekanntes, z.B. \"so\" 'was'? 中文"]:
        assert again.encode(line) == segmenter.encode(line)


def test_known_words_stay_within_the_vocabulary() -> None:
    segmenter = bpe()
    known = set(segmenter.pieces)
    for line in LINES:
        assert known.issuperset(segmenter.encode(line))
    for word in ("hundlaufend", "diehund", "schnelläuft"):  # pieces that would be new are split
        for piece in segmenter.encode(word):
            assert piece in known or len(piece.removesuffix("@@")) == 1
    assert not known.issuperset(bpe("none", False).encode("schnelläuft hundlaufend"))


def test_moses_round_trip() -> None:
    text = "Er sagte: \"Das geht (z.B. so) nicht!\", 'oder' & mehr?"
    for segmenter in (bpe("moses"), unigram("moses")):
        assert segmenter.decode(segmenter.encode(text)) == text
    assert bpe("moses").tokenizer.tokenize("Hallo, [Welt] & 'so'.") == "Hallo , [ Welt ] & ' so ' ."


def test_unigram_is_learnt_alike_and_from_long_lines() -> None:
    assert learn_model(LINES, 60, 0.9995) == learn_model(LINES, 60, 0.9995)
    long = " ".join(["quark"] * 2000)  # 12,000 bytes: SentencePiece skips it by default
    pieces = Unigram(Tokenizer("nfc", "none", "de"), learn_model([*LINES, long], 60, 1.0)).pieces
    assert any("q" in piece for piece in pieces)


def test_unigram_needs_room_for_the_characters() -> None:
    for lines, size in ((LINES, 9), ([], 60)):
        with pytest.raises(UserError, match=r"^segmenter\.kind=unigram: .*\w") as caught:
            learn_model(lines, size, 0.9995)
        assert caught.value.code == Exit.DATA and "\n" not in str(caught.value)


@pytest.mark.parametrize("make", MAKERS[:2])
def test_a_giant_token_takes_bounded_time(make: Callable[[], Segmenter]) -> None:
    segmenter = make()
    started = time.process_time()  # of our own work: the machine may be shared
    text = "hundekatze" * 50_000
    pieces = segmenter.encode(text)
    # tenths of a second; quadratic in one word it would be hours
    assert time.process_time() - started < 5
    assert segmenter.decode(pieces) == text


BAD_PIECES: list[Any] = [{}, [1], ["a", "a"], ["a b"], ["\ud800"]]


def hostile() -> list[Any]:
    good, other = bpe("moses").to_json(), unigram().to_json()
    tokenizer = good["tokenizer"]
    return [
        *(None, [], {}, {"kind": []}, {"kind": "pickle"}),
        {**good, "extra": 1},
        {key: value for key, value in good.items() if key != "pieces"},
        *({**good, "merges": merges} for merges in ("a b", [1], ["a"], ["a  b"], ["a\n b"])),
        *({**good, "pieces": bad} for bad in BAD_PIECES),
        {**good, "tokenizer": {**tokenizer, "kind": "perl"}},
        {**good, "tokenizer": {**tokenizer, "language": ["de"]}},
        *({**other, "model": model} for model in ("", "AAAA", "ü", None)),
    ]


@pytest.mark.parametrize("value", hostile(), ids=lambda value: repr(value)[:40])
def test_hostile_json_is_refused(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        segmenter_from_json(value)
    assert caught.value.code == Exit.DATA
    assert "\n" not in str(caught.value)
