"""Words that are remembered are those that sacremoses makes of the whole line."""

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesTokenizer

from nmt.data import moses
from nmt.data.moses import Moses
from nmt.data.normalise import normalise
from nmt.data.tokenizer import Tokenizer

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
def ours(language: str) -> Tokenizer:
    return Tokenizer("nfc", "moses", language)


@cache
def theirs(language: str) -> MosesTokenizer:
    return MosesTokenizer(lang=language)


def expected(language: str, line: str) -> str:
    return " ".join(theirs(language).tokenize(normalise(line), escape=False))


each_language = pytest.mark.parametrize(
    "language",
    [pytest.param(each, marks=[pytest.mark.slow] * (each == SLOW)) for each in LANGUAGES],
)


@each_language
@given(lines=st.lists(TEXT, max_size=6))
def test_lines_are_those_of_sacremoses(language: str, lines: list[str]) -> None:
    assert ours(language).lines(lines) == [expected(language, line) for line in lines]


@each_language
def test_each_word_beside_each(language: str) -> None:
    draw = random.Random(language)
    parts = draw.sample(PARTS, len(PARTS))
    beside, longer = (1, 40) if language == SLOW else (6, 200)
    lines = [f"{a} {b}" for a in parts for b in draw.sample(parts, beside)]
    lines += [" ".join(draw.choices(PARTS, k=9)) for _ in range(longer)]
    wanted = [expected(language, line) for line in lines]
    assert Tokenizer("nfc", "moses", language).lines(lines) == wanted  # nothing known before
    assert [ours(language).words(line) for line in lines] == wanted


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moses, "CACHED", 50)
    tokenizer = Moses("de")
    lines = [f"Wort{i}, Satz{i}. " + "lang" * 20 + f"{i}" for i in range(100)]
    assert [tokenizer.lines([line])[0] for line in lines] == [expected("de", x) for x in lines]
    assert len(tokenizer._known) <= 55
    assert max(map(len, tokenizer._known)) <= moses.LONG + len(" xx")
