"""One spelling for each text."""

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.tokenizer import normalise

FORMS = ("nfc", "nfkc", "none")
ODD = "\x00\t\r\n\v\f\x1c\x1f\x7f\x80\x85\x93\u2028\u2029\u00ad\u200b\u202e\ufeff\u3000"
TEXT = st.text(st.one_of(st.sampled_from(ODD + "\u2581e\u0301ﬁ "), st.characters(codec="utf-8")))


@given(TEXT, st.sampled_from(FORMS))
def test_result_is_clean_and_stays(text: str, form: str) -> None:
    once = normalise(text, form)
    assert normalise(once, form) == once
    assert " ".join(once.split()) == once  # single spaces, no other white space
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in once)
    if form != "none":
        name: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
        assert unicodedata.is_normalized(name, once)


@given(TEXT)
def test_composed_and_decomposed_are_one(text: str) -> None:
    both = {normalise(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")}
    assert len(both) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\rb\vc\fd\x1ce\x1df\x1eg\x1fh\x85i\u2028j\u2029k", "a b c d e f g h i j k"),
        ("a\x00b\tc\x7fd\x93e", "a b c d e"),
        ("\ufeffso\u00adft\u200b \u202eb\u200f", "soft b"),
        ("a\u00a0\u3000 \u2009b ", "a b"),
        ("e\u200b\u0301", "é"),
        ("می\u200cشود 👩\u200d🚀", "می\u200cشود 👩\u200d🚀"),  # joiners stay
        ("a\u2581b\ud800", "a_b\ufffd"),
        ("\x00 \u200b", ""),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert normalise(text) == expected
