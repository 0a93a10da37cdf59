"""Pieces to ids and back, and the two halves of a side together."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import Exit, UserError
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import BOS, EOS, PAD, UNK, Vocabulary

PIECES = ["a@@", "b", "<unk>", "</s>", "c"]


@given(st.lists(st.sampled_from(PIECES)))
def test_known_pieces_come_back(pieces: list[str]) -> None:
    vocabulary = Vocabulary(PIECES)
    ids = vocabulary.ids(pieces)
    assert ids[-1] == EOS and all(UNK < i < len(vocabulary) for i in ids[:-1])
    assert vocabulary.pieces([BOS, *ids, PAD, 7, EOS]) == pieces


def side() -> Side:
    pieces = ["a@@", "b", "a", "c@@"]
    return Side(Bpe(Tokenizer("nfc", "none", "de"), ["a b</w>"], pieces), Vocabulary(pieces))


def test_side_round_trip() -> None:
    both = side(), Side.from_json(json.loads(json.dumps(side().to_json())))
    for one in both:
        assert one.ids("") == [EOS]
        assert one.ids("ab  a") == [4, 5, 6, EOS]  # "ab" is no piece of this side: split again
        assert one.text([BOS, 4, 5, 6, EOS, 4]) == "ab a"


@pytest.mark.parametrize("value", [None, {}, {"segmenter": {}, "vocabulary": []}])
def test_hostile_side_is_refused(value: Any) -> None:
    with pytest.raises(UserError) as caught:
        Side.from_json(value)
    assert caught.value.code == Exit.DATA


@pytest.mark.parametrize("value", [None, [1], ["a", "a"], ["\n"], [""]])
def test_hostile_vocabulary_is_refused(value: Any) -> None:
    with pytest.raises(UserError):
        Vocabulary.from_json(value)
