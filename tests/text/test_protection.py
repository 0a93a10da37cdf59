"""Strings that patterns of data.protected match become placeholders, on both sides alike."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config.data import Column
from nmt.corpus.prepare import fingerprint, prepare
from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.protection import PLACEHOLDERS, ProtectedLine, Protection, read_patterns
from nmt.text.segmenter_files import sides_of_files
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.training import corpus
from tests.corpus import test_prepare
from tests.pages import ROOT
from tests.text.test_segmenter_files import bpe as codes_files
from tests.text.test_segmenter_files import codes_and_vocabulary
from tests.training import tiny

SHIPPED = str(ROOT / "conf/data/protected.txt")
URL, MAIL = "http://x.de/a_b?c=1", "a.b@c-d.org"
PAIRS = [(f"hund {URL} {i}", f"dog {i}: ({URL})") for i in range(4)] + test_prepare.TRAIN


def protection(*patterns: str, symbols: tuple[str, ...] = ()) -> Protection:
    return Protection(Tokenizer("nfc", "none", "de", (*symbols, *PLACEHOLDERS), patterns))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"see {URL}, please", [URL]),
        ("(www.x.de/a_(b)).", ["www.x.de/a_(b"]),
        (f"to {MAIL}.", [MAIL]),
        ('a <b class="x y">c</b><br/> 1 < 2 > 1', ['<b class="x y">', "</b>", "<br/>"]),
        ("x &amp; y & z; &#160;", ["&amp;", "&#160;"]),
        ("Hi {user.name}, {} ${x}", ["{user.name}", "{}", "${x}"]),
        ("%s %1$d %(n)s %.2f 50% of 100%.", ["%s", "%1$d", "%(n)s", "%.2f"]),
    ],
)
def test_the_patterns_that_come_along(text: str, kept: list[str]) -> None:
    line = protection(*read_patterns(SHIPPED)).line(text)
    assert list(line.strings) == kept
    assert line.restored(line.text) == text


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
    assert protection(r"\{\d+\}", "<BT>", symbols=("<BT>",)).pair(source, target) == placed


def test_of_matches_that_overlap_the_first_and_longest_counts() -> None:
    assert protection("b", "ab", "abc", "cd", "x*").line("abcd abx").strings == ("abc", "ab", "x")


def test_text_that_looks_like_a_placeholder_may_be_protected() -> None:
    line = protection("<[^>]*>").line("<x3> a <b>")
    assert (line.text, line.strings) == ("<x1> a <x2>", ("<x3>", "<b>"))
    assert line.restored(line.text) == "<x3> a <b>"


def test_beyond_nine_strings_are_text() -> None:
    text = " ".join(f"{{{i}}}" for i in range(11))
    line = protection(r"\{\d+\}").line(text)
    assert line.text == " ".join([*PLACEHOLDERS, "{9}", "{10}"])
    assert line.restored(line.text) == text


@pytest.mark.parametrize(
    ("source", "output", "restored"),
    [
        ("(<x1>).", "( <x1> ) .", "(A) ."),
        ("at <x1>.", "<x1> is it.", "A is it."),  # no word follows it in the source
        ("<x1>word<x2> two", "<x1> Wort <x2> zwei", "AWortB zwei"),
        ("<x1> word<x2>", "<x1> Wort <x2>", "A WortB"),
        ("<x1><x2>", "<x1> <x2>", "AB"),
        ("\u8bbf\u95ee<x1>\u3002", "visit <x1> .", "visit A."),  # no spaces between Chinese words
        ("<x1> b", "<x1> <x3> b <x3>", "A b"),  # of no string
        ("<x1> b", "c <x1> <x1>", "c A A"),
        ("<x1>px b, <x1> c", "<x1> px b, <x1> c, <x1> d", "Apx b, A c, A d"),  # each its own
        ("(<x1>) <x1>", "( <x1> ) : <x1>", "(A) : A"),
    ],
)
def test_strings_come_back_with_the_spaces_of_the_source(
    source: str, output: str, restored: str
) -> None:
    assert ProtectedLine(source, ("A", "B")).restored(output) == restored


def test_lost_strings_are_counted() -> None:
    line = ProtectedLine("<x1> a <x2> <x1>", ("A", "B"))
    assert [line.count_lost(t) for t in ("<x1><x2><x1>", "<x2> <x1>", "<x3>", "A B A")] == [
        0, 1, 3, 3,
    ]  # fmt: skip


@pytest.mark.parametrize("tokenizer", ["none", "moses"])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "codes"])
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
        assert again.protection.line(URL).strings == (URL,)


def test_any_number_of_processes_prepares_the_same(tmp_path: Path) -> None:
    one, two = (
        prepare(
            test_prepare.corpus(
                tmp_path, PAIRS, protected=SHIPPED, workers=n, cache=str(tmp_path / f"{n}")
            ),
            test_prepare.BPE,
        )
        for n in (1, 2)
    )
    assert test_prepare.contents(one) == test_prepare.contents(two)


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


def test_columns_go_by_words_with_placeholders(tmp_path: Path) -> None:
    for split, count in (("train", len(PAIRS)), ("dev", len(test_prepare.DEV))):
        lines = [s for s, _ in (PAIRS if split == "train" else test_prepare.DEV)]
        integers = [" ".join(map(str, range(len(line.split())))) for line in lines]
        (tmp_path / f"{split}.c").write_text("".join(f"{line}\n" for line in integers))
        assert len(integers) == count
    column = Column("word", str(tmp_path / "train.c"), str(tmp_path / "dev.c"), None)
    data = test_prepare.corpus(tmp_path, PAIRS, protected=SHIPPED, columns={"c": column})
    prepared = prepare(data, test_prepare.BPE)
    source = prepared.source.vocabulary.pieces(prepared.train.pair(0)[0])
    values = prepared.train.columns["c"][: len(source)].tolist()
    place = source.index("<x1>")
    assert values[place : place + 2] == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n# b\n(c\n", r"patterns:3: \(c: no regular expression for data.protected: missing \)"),
        ("a{99999999999}\n", "patterns:1: .*: no regular expression"),
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


@pytest.mark.parametrize("wrong", ["(b", 5])
def test_damaged_patterns_of_a_model_are_named(wrong: Any) -> None:
    tokenizer = Tokenizer("nfc", "none", "de", PLACEHOLDERS, ["a"])
    plain = Side.of(Bpe(tokenizer, []), ["a"]).to_json()
    plain["segmenter"]["tokenizer"]["protected"] = ["a", wrong]
    with pytest.raises(UserError, match=r"tokenizer\.protected") as error:
        Side.from_json(plain)
    assert error.value.code == Exit.DATA


def test_a_parent_keeps_its_own_patterns(tmp_path: Path) -> None:
    tiny.train(tmp_path / "parent", tiny.prepared(tmp_path / "corpus"), trainer__max_steps=1)
    chosen = tiny.settings(trainer__init_from=str(tmp_path / "parent"))
    data = test_prepare.corpus(tmp_path, protected=SHIPPED)
    with pytest.raises(UserError, match=r"data\.protected=.*: has other patterns than the model"):
        corpus.prepare(replace(chosen, data=data))
    made = prepare(data, test_prepare.BPE)
    sides = [made.source, made.target]
    for protected in (SHIPPED, None):
        again = prepare(replace(data, protected=protected), test_prepare.BPE, sides)
        assert again.source.to_json() == made.source.to_json()
