"""Strings that patterns of data.protected match become placeholders, on both sides alike."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nmt.corpus.prepare import fingerprint, prepare
from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.protection import PLACEHOLDERS, ProtectedLine, Protection, read_patterns
from nmt.text.segmenter_files import sides_of_files
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer, normalise
from tests.corpus import test_prepare
from tests.pages import ROOT
from tests.text.test_segmenter_files import bpe as codes_files
from tests.text.test_segmenter_files import codes_and_vocabulary

SHIPPED = str(ROOT / "conf/data/protected.txt")
EXAMPLES = ROOT / "tests/text/protected.tsv"
URL, MAIL = "http://x.de/a_b?c=1", "a.b@c-d.org"
PAIRS = [(f"hund {URL} {i}", f"dog {i}: ({URL})") for i in range(4)] + test_prepare.TRAIN


@pytest.fixture(scope="module")
def shipped() -> Protection:
    return protection(*read_patterns(SHIPPED))


def protection(*patterns: str, symbols: tuple[str, ...] = ()) -> Protection:
    return Protection(Tokenizer("nfc", "none", "de", [*symbols, *PLACEHOLDERS], [*patterns]))


def test_strings_of_localisation_files_are_found_exactly(shipped: Protection) -> None:
    """But for a selector of Fluent, and for a URL that ends in Chinese."""
    rows = [line.split("\t") for line in EXAMPLES.read_text("utf-8").splitlines()[1:]]
    found = [[text[a:b] for a, b in shipped.spans(text)] for _, text, *_ in rows]
    wrong = [row[0] for row, strings in zip(rows, found, strict=True) if strings != row[2:]]
    assert len(rows) == 150 and wrong == ["Fluent", "URL"]


ORDINARY = [
    "I am 100 % sure: 50% discount, 20%, e.g. 5 % of 10.",
    "Die 100%ige Tochter, 50 %iger Essig, um 6 %zu viel, 5 %der Fälle und 3%!",
    "增长5%\uff0cGDP增长6%。人均(约)3%至4%\uff1b比例\uff1a1:2\uff0c时间10:30:45。",
    "売上は前年比5%増、利益率10%です。「はい」と言った。",
    "AT&T; R&D; Q&A, Universit&auml;t, M&amp, a < b and c > d, x <3 y <b and",
    "and/or, he/she, km/h, Groß/Mittel/Klein, Lese-/Schreib-/Löschrecht, 1/2, 24/7, w/o",
    "24.12.2020, 1.000.000, 10.5, z.B.so, i.e. this, v. Chr., ver 2, 3.1.4",
    "US$5 and $6, A$AP, Ke$ha, $15m to $20m, $ 5, $5bn$",
    "``Quoted'' and ``again'', `quoted', the 90`s and 80`s, rock`n`roll, `a ` b",
    "me @ home, 5 @ 3, a@b, :-) :p ;) 10:30: so: yes, a:b:c, Note:this:that",
    "{a b} and {c d}, {\u4e00 \u4e8c} \u548c {\u4e09 \u56db}",
    "give <the file to read> or <path \u2026>, x <y = z, 1 <2 and a=b>",
    "`a', under OS/2 `;', and `it's` so",
    "(a) [b] {eins, zwei} [sic], C:, c:/x, \\ , a\\b, # 5, *so*, _so_",
]


def test_ordinary_text_has_no_strings(shipped: Protection) -> None:
    assert [text for text in ORDINARY if [*shipped.spans(text)]] == []


HOSTILE = (
    *("{", "<a ", "(", "%", "\u00e9", " ", "@", "/", "&", "$", "`", "\\", "http://", "http://a."),
    *("a@b.", "@a-", '<a b="', "<!--", "</1", "{{", "${", "{a,date,", "%(a", "$a", "C:\\a.", "{}"),
)


@pytest.mark.parametrize("unit", HOSTILE)
def test_long_hostile_strings_take_no_time(shipped: Protection, unit: str) -> None:
    """Linear or nearly so: a pattern that is not would take minutes, or for ever."""
    start = time.process_time()
    for text in (unit * (5_000 // len(unit)), unit + "a" * 5_000, unit + " " * 5_000 + "a"):
        line = shipped.protect(text)
        assert line.restore(line.text) == text.strip(" ")
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("source", "target", "placed"),
    [
        ("a {1} b {2}", "{2} c {1}", ("a <x1> b <x2>", "<x2> c <x1>")),
        ("{1} {1}", "{1}", ("<x1> <x1>", "<x1>")),
        ("{0} {1}", "{1} {2}", ("{0} <x1>", "<x1> {2}")),  # on one side alone: text
        ("a", "{1}", ("a", "{1}")),
        ("<x1> {1}", "{1} <x1>", ("< x1> <x1>", "<x1> < x1>")),  # no placeholder
        (
            "".join(f"{{{i}}}" for i in range(11)),
            "{10} {9} {8}",
            ("{0}{1}{2}{3}{4}{5}{6}{7}<x1><x2><x3>", "<x3> <x2> <x1>"),
        ),
        ("<BT>{1}", "{1} <BT>", ("<BT><x1>", "<x1> <BT>")),  # a symbol is one piece anyway
    ],
)
def test_pairs(source: str, target: str, placed: tuple[str, str]) -> None:
    assert protection(r"\{\d+\}", "<BT>", symbols=("<BT>",)).protect_pair(source, target) == placed


@pytest.mark.parametrize(
    ("patterns", "text", "strings"),
    [
        (["b", "ab", "abc", "cd", "x*"], "abcd abx", ("abc", "ab", "x")),
        ([r"\{\w+\}", r"\}\}"], "{{a}}}", ("{a}", "}}")),  # behind a string, not within it
        (["ab", "b+"], "abbb", ("ab", "bb")),
        (["aa", r"(?<=a)b"], "aab", ("aa", "b")),  # what stands before it is known
    ],
)
def test_of_matches_that_overlap_the_first_and_longest_counts(
    patterns: list[str], text: str, strings: tuple[str, ...]
) -> None:
    assert protection(*patterns).protect(text).strings == dict(
        zip(PLACEHOLDERS, strings, strict=False)
    )


@pytest.mark.parametrize(
    ("source", "output", "restored"),
    [
        ("(<x1>).", "( <x1> ) .", "(A) ."),
        ("at <x1>.", "<x1> is it.", "A is it."),  # no word follows it in the source
        ("<x1> word<x2>", "<x1> Wort <x2>", "A WortB"),
        ("<x1><x2>", "<x1> <x2>", "AB"),
        ("\u8bbf\u95ee<x1>\u3002", "visit <x1> .", "visit A."),  # no spaces between Chinese words
        ("<x1> b", "<x1> <x3> b <x3>", "A b"),  # of no string
        ("<x1>px b, <x1> c", "<x1> px b, <x1> c, <x1> d", "Apx b, A c, A d"),  # each its own
        ("see <x1> now", "jetzt <x1> .", "jetzt A."),  # punctuation follows it here alone
        ("<x1> and <x2>", "( <x2> , <x1> )", "(B, A)"),
        ("a <x1> , b", "a <x1> , b", "a A , b"),  # as here
        ("\u7528<x1>\uff0c<x2>\u3002", "use <x1> , <x2> .", "use A, B."),
        ("\u7248\u672c\uff1a<x1>\uff08<x2>\uff09", "Version: <x1> ( <x2> )", "Version: A (B)"),
        ("<x1>a<x2>", "<x1> <x2> a <x1> <x2>", "A B a A B"),
        ("a <x1>", "<x5> a <x4> <x1> <x3>.", "a A."),
    ],
)
def test_strings_come_back_with_the_spaces_of_the_source(
    source: str, output: str, restored: str
) -> None:
    assert ProtectedLine(source, {"<x1>": "A", "<x2>": "B"}).restore(output) == restored


WORD = st.sampled_from(["dog", "Größe", "3", "(", ")", "“", ".", ",", "{", "}", "<", "&", "%"])
SPACED = Tokenizer("nfc", "none", "", [*PLACEHOLDERS])
UNSPACED = st.sampled_from(["访问", "谢谢", "。", "\uff0c", "\uff08", "\uff09", "の", "は"])
STRING = st.sampled_from(
    [URL, MAIL, "<b>", "</b>", '<a title="a > b">', "{name}", "{{x}}", "%s", "%%", "`a b`", "&lt;"]
) | st.integers(0, 12).map("{{{}}}".format)


@given(st.lists(WORD | UNSPACED | STRING | st.just(" ") | st.text(max_size=3)).map("".join))
def test_a_line_comes_back_from_its_own_placeholders(shipped: Protection, text: str) -> None:
    line = shipped.protect(text)
    assume(not re.search("<x[1-9]>", text))
    assert line.restore(line.text) == text.strip(" ")


@given(st.lists(WORD | STRING | st.just(" ")).map("".join).map(normalise))
def test_so_it_does_from_a_model_that_copies(shipped: Protection, text: str) -> None:
    """Its output has spaces around placeholders."""
    line = shipped.protect(text)
    assert line.restore(SPACED.tokenize(line.text)) == text


def test_lost_strings_are_counted() -> None:
    line = ProtectedLine("<x1> a <x2> <x1>", {"<x1>": "A", "<x2>": "B"})
    assert [line.count_lost(t) for t in ("<x1><x2><x1>", "<x2> <x1>", "<x3>", "A B A")] == [
        0, 1, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "tokenizer"), [("bpe", "none"), ("unigram", "moses"), ("codes", "none")]
)
def test_a_corpus_has_placeholders(kind: str, tokenizer: str, tmp_path: Path) -> None:
    data = test_prepare.corpus(tmp_path, PAIRS, protected=SHIPPED)
    choice: Any = test_prepare.BPE if kind == "bpe" else test_prepare.UNIGRAM
    sides = None
    if kind == "codes":
        codes, known = codes_and_vocabulary(tmp_path)
        choice = codes_files(codes, known)
        sides = sides_of_files(data, choice)
    prepared = prepare(data, replace(choice, tokenizer=tokenizer), sides)
    for side, ids in zip((prepared.source, prepared.target), prepared.train.pair(0), strict=True):
        pieces = side.vocabulary.pieces(ids)
        assert pieces.count("<x1>") == 1 and "http" not in "".join(pieces)
        assert set(PLACEHOLDERS) <= set(side.vocabulary.to_json())
        again = Side.from_json(json.loads(json.dumps(side.to_json())))
        assert again.protection.protect(URL) == ("<x1>", {"<x1>": URL})


def test_other_patterns_are_another_corpus_and_another_path_is_not(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("one", "same", "other")]
    for path, pattern in zip(paths, ("a+", "# as before\n\na+", "b+"), strict=True):
        path.write_text(f"{pattern}\n")
    plain = test_prepare.corpus(tmp_path)
    none, one, same, other = (
        fingerprint(replace(plain, protected=path), test_prepare.BPE)
        for path in (None, *map(str, paths))
    )
    assert one == same and len({none, one, other}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n# b\n(c\n", r"patterns:3: \(c: no regular expression for data.protected: missing \)"),
        ("a\nb*\n", r"patterns:2: b\*: .*: matches the empty string"),
        ("# a\n\n", "patterns: no pattern"),
    ],
)
def test_what_is_no_pattern_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "patterns").write_text(text)
    data = test_prepare.corpus(tmp_path, protected=str(tmp_path / "patterns"))
    with pytest.raises(UserError, match=message):
        prepare(data, test_prepare.BPE)


def test_a_missing_file_and_a_symbol_that_is_a_placeholder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: .*data\.protected"):
        prepare(test_prepare.corpus(tmp_path, protected="nowhere"), test_prepare.BPE)
    data = test_prepare.corpus(tmp_path, protected=SHIPPED, user_symbols=["<x3>"])
    with pytest.raises(UserError, match=r"<x3> stands for strings of data\.protected"):
        prepare(data, test_prepare.BPE)


def test_damaged_patterns_of_a_model_are_named() -> None:
    tokenizer = Tokenizer("nfc", "none", "de", [*PLACEHOLDERS], ["a"])
    plain = Side.of(Bpe(tokenizer, []), ["a"]).to_json()
    plain["segmenter"]["tokenizer"]["protected"] = ["a", "(b"]
    with pytest.raises(UserError, match=r"tokenizer\.protected") as error:
        Side.from_json(plain)
    assert error.value.code == Exit.DATA


def test_a_parent_keeps_its_own_patterns(tmp_path: Path) -> None:
    data, plain = (test_prepare.corpus(tmp_path, protected=path) for path in (SHIPPED, None))
    made, without = (prepare(each, test_prepare.BPE) for each in (data, plain))
    with pytest.raises(UserError, match=r"data\.protected=.*: has other patterns than the model"):
        prepare(data, test_prepare.BPE, [without.source, without.target])
    for each in (data, plain):
        again = prepare(each, test_prepare.BPE, [made.source, made.target])
        assert again.source.to_json() == made.source.to_json()
