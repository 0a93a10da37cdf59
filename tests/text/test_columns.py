"""Columns of integers reach the pieces of their words, in stores, batches and messages."""

import gzip
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.data import Column, Data, Segmentation
from nmt.corpus import scan
from nmt.corpus.batches import in_order
from nmt.corpus.learn import learn_merges
from nmt.corpus.prepare import Prepared, prepare
from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.columns import ColumnLine, expand, word_indices
from nmt.text.side import Segmenter
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import SPACE, Unigram, learn_model
from tests.corpus.test_prepare import BPE, UNIGRAM, corpus

TEXT = ["der alte Hund läuft, weil er muss.", "das (kleine) Haus", "Hunde laufen, Häuser nicht."]
MERGES = learn_merges({w: 3 for line in TEXT for w in line.split()}, 12, 1)[0]
MODEL = learn_model(TEXT, 40, 1.0)


def segmenter(kind: str, tokenizer: Any = "none") -> Segmenter:
    words = Tokenizer("nfc", tokenizer, "de")
    return Bpe(words, MERGES) if kind == "bpe" else Unigram(words, MODEL)


def numbered(text: str, where: Segmenter) -> list[int]:
    surfaces = where.surfaces(where.encode(text))
    return word_indices(text.split(" ") if text else [], surfaces, "here")


ODD = st.text("abderHu ,.-@'\"()▁ßé中…", max_size=30)


@given(ODD, st.sampled_from(["bpe", "unigram"]))
def test_each_piece_belongs_to_the_word_it_is_cut_from(text: str, kind: str) -> None:
    """Without a tokenizer: the segmenters themselves mark where a word ends, or begins."""
    some = segmenter(kind)
    line = some.tokenizer.tokenize(text)
    pieces = some.encode(line)
    if kind == "bpe":
        ends = np.cumsum([not piece.endswith("@@") for piece in pieces], dtype=int)
        expected = [0, *ends[:-1].tolist()] if pieces else []
    else:
        expected = (np.cumsum([piece.startswith(SPACE) for piece in pieces]) - 1).tolist()
    assert numbered(line, some) == expected


@given(ODD, st.sampled_from(["bpe", "unigram"]))
def test_moses_is_followed_back_to_the_words_or_refused(text: str, kind: str) -> None:
    some = segmenter(kind, "moses")
    line = segmenter(kind).tokenizer.tokenize(text)
    pieces = some.surfaces(some.encode(line))
    try:
        found = numbered(line, some)
    except UserError as error:
        assert "do not add up to its words" in str(error)
        assert "".join(pieces) != line.replace(" ", "")
    else:
        both = groupby(zip(found, pieces, strict=True), key=lambda pair: pair[0])
        words = ["".join(piece for _, piece in some_pieces) for _, some_pieces in both]
        assert words == (line.split(" ") if line else [])


class Halves(Bpe):
    """Each word in two pieces, so that what is expected can be written down."""

    def __init__(self) -> None:
        super().__init__(Tokenizer("nfc", "none", "de"), [])

    def encode(self, text: str) -> list[str]:
        words = self.tokenizer.tokenize(text).split(" ")
        return [p for w in words for p in ([w[:1] + "@@", w[1:]] if len(w) > 1 else [w])]


def columns(text: str, most: Any = None, **beside: str) -> dict[str, list[int]]:
    per = {"language": "sentence"}
    given = {n: ColumnLine(per.get(n, "word"), v, f"{n}:7") for n, v in beside.items()}
    return expand(text, given, Halves(), "line 7", most=most)


def test_words_become_pieces_and_eos_has_its_own_values() -> None:
    found = columns("ab c def", heads="2 0 2", order="5 -3 1", language="4")
    assert found == {
        "heads": [3, 3, 0, 3, 3, 0],  # c is the third piece; eos is a root
        "order": [5, 5, -3, 1, 1, 6],
        "words": [0, 0, 1, 2, 2, 3],
        "language": [4],
    }
    assert columns("ab  c\u00a0def ", heads="3 3 0")["heads"] == [4, 4, 4, 0, 0, 0]
    assert columns("ab", language="4") == {"language": [4]}
    assert columns("ab") == {}


def test_a_line_that_is_cut_keeps_a_tree() -> None:
    found = columns("ab c def", most=2, heads="3 1 0", order="5 9 1")
    assert found == {"heads": [0, 0, 0], "order": [5, 5, 6], "words": [0, 0, 1]}


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"heads": "0 1"}, "heads:7: 2 integers, but the source line has 3 words; mend the file"),
        ({"language": "1 2"}, "language:7: 2 integers, but a sentence has one; "),
        ({"order": "0 1 1_0"}, "order:7: '1_0' is no integer of 32 bits; "),
        ({"order": "0 1 \u0663"}, r"order:7: '\u0663' is no integer of 32 bits; "),
        ({"order": "0 1 2147483647"}, "order:7: '2147483647' is no integer of 32 bits; "),
        ({"heads": "4 0 1"}, "heads:7: word 1 has the head 4, outside of 0..3; "),
        ({"heads": "0 2 1"}, "heads:7: word 2 hangs on itself, in a circle; "),
    ],
)
def test_what_is_no_column_of_the_line_is_refused(beside: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as error:
        columns("ab c def", **beside)
    assert str(error.value).startswith(message)
    assert error.value.code == Exit.DATA


@given(st.lists(st.integers(0, 7), min_size=1, max_size=7))
def test_heads_are_accepted_just_where_every_word_leads_to_a_root(heads: list[int]) -> None:
    def rooted(word: int) -> bool:
        for _ in heads:
            word = heads[word - 1] if 0 < word <= len(heads) else word
        return word == 0

    line, given = " ".join("a" * len(heads)), " ".join(map(str, heads))
    if all(rooted(word) for word in range(1, len(heads) + 1)):
        assert columns(line, heads=given)["heads"] == [*heads, 0]
    else:
        with pytest.raises(UserError, match="trees"):
            columns(line, heads=given)


TRAIN = [(f"hund {i}", f"dog {i}") for i in range(12)]
LINES = {"heads": [f"{i % 2 and 2} {i % 2 == 0:d}" for i in range(12)]}
LINES |= {"tag": [f"{i} {-i}" for i in range(12)], "language": [str(i) for i in range(12)]}


def beside(tmp_path: Path, **changed: list[str]) -> Data:
    """A corpus with three columns; changed ones stand beside the training text."""
    named = {}
    dev = {"heads": ["2 0", "0 " + "1 " * 29, "", "0 1"], "language": ["8", "8", "8", "9"]}
    dev["tag"] = ["1 2", "3 " * 30, "", "5 6"]
    for name in LINES:
        paths = {}
        for split, lines in (("train", changed.get(name, LINES[name])), ("dev", dev[name])):
            paths[split] = tmp_path / f"{split}.{name}"
            paths[split].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        per: Any = "sentence" if name == "language" else "word"
        named[name] = Column(per, str(paths["train"]), str(paths["dev"]), None)
    return corpus(tmp_path, TRAIN, columns=named)


def check(prepared: Prepared, kept: list[int]) -> None:
    """Compare a store with what its text and the lines say."""
    store = prepared.train
    assert store.lines.tolist() == [i + 1 for i in kept]
    assert store.per == {"heads": "word", "tag": "word", "language": "sentence", "words": "word"}
    assert store.columns["language"].tolist() == kept
    starts = store.offsets["source"]
    for row, i in enumerate(kept):
        start, end = int(starts[row]), int(starts[row + 1])
        tags, heads, words = (
            store.columns[name][start:end].tolist() for name in ("tag", "heads", "words")
        )
        second = words.index(1)
        assert words == [0] * second + [1] * (end - start - 1 - second) + [2]
        assert tags == [i] * second + [-i] * (end - start - 1 - second) + [i + 1]
        first = [0, second + 1][i % 2], [1, 0][i % 2]
        assert heads == [first[0]] * second + [first[1]] * (end - start - 1 - second) + [0]


@pytest.mark.parametrize("choice", [BPE, UNIGRAM, replace(BPE, tokenizer="moses")])
def test_columns_are_stored_beside_the_source(tmp_path: Path, choice: Segmentation) -> None:
    prepared = prepare(beside(tmp_path), choice)
    check(prepared, list(range(12)))
    assert prepared.dev.columns["language"].tolist() == [8, 8, 9]  # an empty line is dropped
    assert prepared.dev.columns["tag"].dtype == np.int32


def test_dropped_pairs_take_their_columns_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks, with processes, and compressed: the lines still belong together."""
    monkeypatch.setattr(scan, "CHUNK", 5)
    data = replace(beside(tmp_path), invalid_utf8="drop", workers=2)
    source = Path(data.train_source)
    lines = source.read_bytes().split(b"\n")
    lines[2], lines[7], lines[9] = b"\xff", b"hund " * 200, b"hund " * 22
    source.write_bytes(b"\n".join(lines))
    packed = tmp_path / "tags.gz"
    packed.write_bytes(gzip.compress(Path(data.columns["tag"].train).read_bytes()))
    data.columns["tag"] = replace(data.columns["tag"], train=str(packed))
    check(prepare(data, BPE), [0, 1, 3, 4, 5, 6, 8, 10, 11])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LINES["heads"][:10], "1 1", "0 1"], r"train\.heads:11: word 1 hangs on itself"),
        ([*LINES["heads"][:11], "0 \udcff"], r"train\.heads:12: '\\ufffd' is no integer"),
        (LINES["heads"][:11], r"train\.de: 12 lines, .*train\.heads: 11; the two must be para"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    data = beside(tmp_path)
    path = Path(data.columns["heads"].train)
    path.write_bytes("".join(f"{x}\n" for x in lines).encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=message) as error:
        prepare(data, BPE)
    assert error.value.code == Exit.DATA


def test_batches_pad_columns_with_zeros(tmp_path: Path) -> None:
    prepared = prepare(beside(tmp_path), BPE)
    store = prepared.dev
    (batch,) = in_order(store, 1000, "max")
    assert {name: values.dtype for name, values in batch.columns.items()} == dict.fromkeys(
        ("heads", "tag", "language", "words"), torch.int64
    )
    assert batch.columns["language"].shape == (3, 1)
    for row, line in enumerate(batch.lines):
        i = store.lines.tolist().index(line)
        start, end = (int(at) for at in store.offsets["source"][i : i + 2])
        assert batch.columns["language"][row].item() == store.columns["language"][i]
        for name in ("heads", "tag", "words"):
            expected = store.columns[name][start:end].tolist()
            padding = batch.source.shape[1] - len(expected)
            assert batch.columns[name][row].tolist() == expected + [0] * padding
    plain = prepare(corpus(tmp_path, TRAIN), BPE)
    assert next(in_order(plain.train, 99, "max")).columns == {}
    assert not list(plain.path.rglob("*column*"))
