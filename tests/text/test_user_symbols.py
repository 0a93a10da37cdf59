"""Words of data.user_symbols are one piece in every segmenter, however text is tokenised."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config import check as schema
from nmt.config.data import Corpus, Data
from nmt.corpus.prepare import prepare
from nmt.errors import UserError
from nmt.text.bpe import Bpe, BpeDropout
from nmt.text.segmenter_files import sides_of_files
from nmt.text.side import Side, Sides
from nmt.text.unigram import NBest, Unigram
from tests import composing
from tests.corpus import test_prepare
from tests.text.test_segmenter_files import bpe as codes_files
from tests.text.test_segmenter_files import codes_and_vocabulary, spm, spm_model

SYMBOLS = [">>de<<", "<BT>", "{name}", "http://x.y/?a=1&b"]
PAIRS = [(f"<BT> {s}", f"{t} {{name}}") for s, t in test_prepare.TRAIN]
KINDS = ("bpe", "unigram", "spm", "spm of bytes", "codes")


def sides(kind: str, tokenizer: str, folder: Path) -> Sides:
    """The sides of a segmenter of this kind, with symbols."""
    data = test_prepare.corpus(folder, PAIRS, user_symbols=SYMBOLS)
    if kind in ("bpe", "unigram"):
        learned: Any = test_prepare.BPE if kind == "bpe" else test_prepare.UNIGRAM
        size = {"vocabulary_size": 40} if kind == "unigram" else {}
        made = prepare(data, replace(learned, tokenizer=tokenizer, shared_vocabulary=True, **size))
        return [made.source, made.target]
    if kind == "codes":
        codes, known = codes_and_vocabulary(folder)
        return sides_of_files(data, codes_files(codes, known, tokenizer=tokenizer))
    bytes_too = {"byte_fallback": True, "vocab_size": 300}
    more: dict[str, Any] = bytes_too if "bytes" in kind else {"vocab_size": 36}
    model = spm_model(folder / "m", model_type="bpe" if "bytes" in kind else "unigram", **more)
    return sides_of_files(data, spm(model, tokenizer=tokenizer))


@pytest.mark.parametrize(
    ("kind", "tokenizer"), [*zip(KINDS, ("moses", "none", "moses", "none", "moses"), strict=True)]
)
def test_symbols_are_pieces_and_come_back(kind: str, tokenizer: str, tmp_path: Path) -> None:
    for made in sides(kind, tokenizer, tmp_path):
        side = Side.from_json(made.to_json())
        assert [p for p in side.vocabulary.to_json() if any(s in p for s in SYMBOLS)] == sorted(
            SYMBOLS, key=side.vocabulary.to_json().index
        )
        for symbol in SYMBOLS:
            alone = side.vocabulary.pieces(side.ids(symbol))
            assert alone == [symbol]
            for line in (f"{symbol} dog 1", f"dog {symbol} {symbol} dog 1", f"dog 1 {symbol}"):
                pieces = side.vocabulary.pieces(side.ids(line))
                assert pieces.count(symbol) == line.count(symbol)
                assert side.text(side.ids(line)) == line
            inside = side.segmenter.encode(f"dog{symbol}1")
            assert side.segmenter.decode(inside) == f"dog {symbol} 1" and symbol in inside


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampled_text_keeps_symbols(kind: str, tmp_path: Path) -> None:
    side = sides(kind, "none", tmp_path)[0]
    line = "<BT> hund 3 lauft <BT> hund {name}"
    sampler: BpeDropout | NBest
    if isinstance(segmenter := side.segmenter, Bpe):
        sampler = BpeDropout(segmenter, side.vocabulary, 0.9)
    else:
        assert isinstance(segmenter, Unigram)
        sampler = NBest(segmenter, side.vocabulary, 0.0, 9)
    drawn = {side.text(sampler.sample(side.ids(line)[:-1])) for _ in range(30)}
    pieces = [side.vocabulary.pieces(sampler.sample(side.ids(line)[:-1])) for _ in range(30)]
    assert drawn == {line}
    assert all(p.count("<BT>") == 2 and p[0] == "<BT>" for p in pieces)


def test_a_parent_must_know_the_symbols(tmp_path: Path) -> None:
    data = test_prepare.corpus(tmp_path, user_symbols=["<BT>"])
    made = prepare(test_prepare.corpus(tmp_path), test_prepare.BPE)
    parent = [made.source, made.target]
    with pytest.raises(UserError, match=r"data\.user_symbols: <BT> is no piece of the model"):
        prepare(data, test_prepare.BPE, parent)
    prepare(replace(data, user_symbols=["3"]), test_prepare.BPE, parent)
    tagged = replace(data, user_symbols=[], corpora={"fr": schema.read(Corpus, {"tag": "<BT>"})})
    with pytest.raises(UserError, match=r"data\.corpora, tag: <BT> is no piece of the model"):
        prepare(tagged, test_prepare.BPE, parent)


@pytest.mark.parametrize("symbol", ["a b", "", "x@@", "\u2581x", "\u2126"])
def test_what_cannot_be_one_piece_is_refused(symbol: str) -> None:
    plain = schema.to_plain(composing.settings_of("data=toy").data) | {
        "user_symbols": ["<BT>", symbol]
    }
    with pytest.raises(UserError, match=r"(?s)^data\.user_symbols=.*: expected characters without"):
        schema.read(Data, plain, "data")
