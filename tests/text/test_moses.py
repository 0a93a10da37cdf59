"""Words are those of sacremoses."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from nmt.text.tokenizer import Tokenizer, normalise

LANGUAGES = ("de", "en", "fr", "zh", "xx")  # xx has no rules of its own
SLOW = "zh"  # sacremoses takes thirty times as long with it: it gets fewer lines
NASTY = """
z.B. d.h. Nr. No. Art. Dr. Mr. pp. St. Prof. U.S.A. vgl. (vgl. Abs.) Ende. end. x.y .NET a..b ... ..
. Wort word Übung naïve x a-b -a a- -- a/b 5 5. 1. 12,5 1,000.00 5, ,5 ,, , a,b a, 3,x No.5 ²,³ 50%
' '' 's it's don't dogs' 'tis '90s 1990's l'eau o'clock' x.' 'Wort Wort' 'Wort' '. .' ',' '5 5' é'a
\u2019s `a` "so" „so“ «a» http://a.b/c?d=e&f=g#h www.x.org. a@b.de @you #tag <b> </b> [1] {x} &amp;
€5 $5, 5€. C++ * ?! !. a|b \u2026 a\u2026b DOTMULTI DOTDOTMULTI. MULTI xxxx 1111 XXXX x1X
中文\uff0c字。 中. 中'文' 日本語 한국어. ไทย हिन्दी। ß. ñ' 𠀀𠀁, 👩\u200d🚀.
"""
PARTS = NASTY.split()
TEXT = st.lists(
    st.one_of(
        st.sampled_from(PARTS),
        st.text("'.,aA1 xX-中", min_size=1, max_size=6),
        st.text(st.characters(codec="utf-8"), max_size=5),
    ),
    max_size=12,
).map(" ".join)


@cache
def nmt_tokenizer(language: str) -> Tokenizer:
    return Tokenizer("nfc", "moses", language)


@cache
def moses_tokenizer(language: str) -> MosesTokenizer:
    return MosesTokenizer(lang=language)


def expected(language: str, line: str) -> str:
    return " ".join(moses_tokenizer(language).tokenize(normalise(line), escape=False))


each_language = pytest.mark.parametrize(
    "language",
    [pytest.param(each, marks=[pytest.mark.slow] * (each == SLOW)) for each in LANGUAGES],
)


@each_language
@given(line=TEXT)
def test_words_are_those_of_sacremoses(language: str, line: str) -> None:
    assert nmt_tokenizer(language).tokenize(line) == expected(language, line)
