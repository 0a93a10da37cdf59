"""Alignments: from attention between pieces to words as a reader counts them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nmt
from nmt.decode.alignment import align, word_shares
from nmt.decode.engine import Source
from nmt.decode.models import cross_attention
from nmt.decode.translator import Translator
from nmt.errors import Exit, UserError
from nmt.model.layers import AttentionRecord, watching
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.protection import ProtectedLine
from nmt.text.side import Segmenter, Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram, learn_model
from nmt.text.vocab import BOS, END, EOS, Vocabulary
from tests.decode.copying import decode, diagonal, trained

MOSES = Bpe(Tokenizer("nfc", "moses", "de"), ["H a", "r a"])
WORDS = ["Haus,", "z.B.", "(ja)", "a", "'s", "...", "Zu\u0308rich", "3,5", "«", "\u200bab", "x@@"]


def side(segmenter: Any, *pieces: str) -> Side:
    return Side(cast(Segmenter, segmenter), Vocabulary(pieces))


def spaces() -> Side:
    return trained().source


@pytest.fixture(scope="module")
def unigram() -> Unigram:
    tokenizer = Tokenizer("nfc", "none", "de")
    return Unigram(tokenizer, learn_model([" ".join(WORDS), "Haus a ja b", "ab 3 5"] * 9, 60, 1.0))


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_pieces_belong_to_the_words_that_have_their_characters(words: list[str]) -> None:
    spaced = "\u00a0 ".join(words)
    check_pieces(MOSES, words, spaced)


def test_pieces_with_a_mark_for_spaces(unigram: Unigram) -> None:
    check_pieces(unigram, WORDS, " ".join(WORDS))
    pieces = unigram.surfaces(["\u2581", "Haus", "\u2581", "a"])  # a mere space: to what follows
    assert word_shares(side(unigram), pieces, ["Haus", "a"]).argmax(1).tolist() == [0, 0, 1, 1]


def check_pieces(segmenter: Any, words: list[str], text: str) -> None:
    pieces = segmenter.encode(text)
    with patch("nmt.decode.alignment.SequenceMatcher", None):  # nothing is left to similarity
        shares = word_shares(side(segmenter), segmenter.surfaces(pieces), text.split())
    assert shares.sum(1) == pytest.approx(1)
    for number, word in enumerate(words):
        own = [p for p, share in zip(pieces, shares[:, number], strict=True) if share]
        assert (
            "".join(segmenter.surfaces(own))
            == "".join(segmenter.encode(word)).replace("@@", "").replace("\u2581", "")
            or "@@" in word
        )


def test_a_piece_over_two_words_is_shared() -> None:
    class Joined(Unigram):
        def __init__(self) -> None:
            self.tokenizer = Tokenizer("none", "none", "de")

    assert word_shares(side(Joined()), ["a", "bcc", "c"], ["ab", "ccc"]).tolist() == [
        [1, 0], [pytest.approx(1 / 3), pytest.approx(2 / 3)], [0, 1],
    ]  # fmt: skip
    # a segmenter that changes characters: those between equal ones keep their place
    changed = word_shares(
        side(Joined()), ["x", "f", "in", "y", "<0xE2>"], ["x", "\ufb01n", "y\u2713"]
    )
    assert changed.argmax(1).tolist() == [0, 1, 1, 2, 2] and changed.sum(1).tolist() == [1] * 5


def test_a_word_has_the_mean_of_its_pieces() -> None:
    table = [[0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.5, 0.0], [0.1, 0.1, 0.1, 0.7], [0, 0, 0, 1]]
    target = side(MOSES, "a@@", "b", "c")
    pair = pair_of("a Xa", 3, target.vocabulary.ids(["a@@", "b", "c"]))
    one = align("a Xa", "ab c", [(pair, np.array(table))], side(MOSES), target)
    assert one.words == pytest.approx(np.array([[0.375, 0.5625, 0.0625], [0.1, 0.2, 0.7]]))
    assert one.pairs == [(1, 0), (1, 1)]  # not the end of the line, though it has most
    assert one.source == ["a", "X@@", "a", "</s>"] and one.target == ["a@@", "b", "c", "</s>"]


def pair_of(text: str, pieces: int, target: list[int]) -> Source:
    ids, protected = [*range(4, 4 + pieces), EOS], ProtectedLine(text, {})
    return Source(ids, {}, text=text, protected=protected, target=target)


LINES = ["w1 w2  w3", "", " w4  w5 w6 w7 w8 w9 w10 w11", "w12"]


@pytest.mark.parametrize(
    "changes",
    [
        {"window": 1},
        {"method": "sample", "mbr": 3, "top_k": 1},
        {"max_source": 3, "too_long": "split"},
    ],
)
def test_words_of_whole_lines_are_counted(changes: Any) -> None:
    translator = diagonal(trained(), decode(**changes))
    found = list(translator.translate(LINES, 2, align=True))
    for line, some in zip(LINES, found, strict=True):
        for translation in some:
            assert translation.alignment is not None
            pairs = translation.alignment.pairs
            source, target = line.split(), translation.text.split()
            assert [p for p in translation.alignment.target if p != END] == target
            if "max_source" not in changes or target == source:
                assert pairs == [(i, i) for i in range(min(len(source), len(target)))]
    if "beam_size" not in changes:
        assert [some[0].text for some in found] == [" ".join(line.split()) for line in LINES]
    assert all(t.alignment is None for some in translator.translate(LINES) for t in some)


@pytest.mark.parametrize(
    ("line", "most", "text", "pairs"),
    [
        (
            ">>de<< w1 w2. W3 w4. W5", 1000, ">>de<< w1 w2. >>de<< W3 w4. >>de<< W5",
            [(0, 0), (0, 3), (0, 6), (1, 1), (2, 2), (3, 4), (4, 5), (5, 7)],
        ),
        (  # a sentence with a tag of its own, too long
            ">>de<< w11 w2. >>fr<< W33 w4.", 2, ">>de<< w11 >>de<< w2. >>fr<< W33 >>fr<< w4.",
            [(0, 0), (0, 2), (1, 1), (2, 3), (3, 4), (3, 6), (4, 5), (5, 7)],
        ),
    ],
)  # fmt: skip
def test_parts_that_begin_with_a_tag(
    line: str, most: int, text: str, pairs: list[tuple[int, int]]
) -> None:
    data = replace(trained().settings.data, source_language="en", target_language="en")
    model = trained(3)
    facts = model.facts | {"longest_source": 2}
    model = model._replace(settings=replace(model.settings, data=data), facts=facts)
    side = Side(model.source.segmenter, Vocabulary([*dict.fromkeys(line.split())]))
    model = model._replace(source=side, target=side)
    translator = diagonal(model, decode(split="sentences", max_source=most, too_long="split"))
    ((best,),) = translator.translate([line], align=True)
    assert best.text == text
    assert best.alignment is not None
    assert best.alignment.pairs == pairs
    assert best.alignment.attention.shape == (len(text.split()) + text.count(">>"),) * 2


def test_given_translations() -> None:
    some = trained()
    found = diagonal(some, decode()).align(["w1  w2", "", "w3"], ["w4 w5", "", "unheard w6"])
    assert [one.pairs for one in found] == [[(0, 0), (1, 1)], [], [(0, 0)]]
    assert found[2].target == ["<unk>", "w6", "</s>"]
    with pytest.raises(UserError, match="translations: only 1 lines"):
        diagonal(some, decode()).align(["w1", "w2"], ["w1"])
    some.model.target_limit = 2  # type: ignore[misc]
    with pytest.raises(UserError, match=r"1 \(first: line 2; longest: 2") as e:
        diagonal(some, decode()).align(["w1", "w2"], ["w1", "w2 w3"])
    assert e.value.code == Exit.DATA


Make = Callable[..., Trained]


@pytest.fixture
def member(real: Make) -> Make:
    return partial(real, seed=1)


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=relative", "model.decoder_layers=3"],
        ["encoding=complex_order"],
        ["encoding=rotary", "model.decoder_layers=1"],
    ],
    ids=str,
)
def test_attention_is_that_of_the_last_layer_but_one(member: Make, words: list[str]) -> None:
    model = member(*words).model
    texts = [([5, 6, 7, EOS], [5, EOS]), ([8, EOS], [6, 7, 8, EOS]), ([9, 4, EOS], [EOS])]
    pairs = [Source(source, {}, target=target) for source, target in texts]
    for (source, target), weights in zip(texts, cross_attention([model], pairs), strict=True):
        layers: list[AttentionRecord] = []
        with torch.no_grad(), watching(model, layers.append):
            model(torch.tensor([source]), torch.tensor([[BOS, *target[:-1]]]))
        cross = [record for record in layers if record.site == "cross"]
        means = torch.stack([record.probabilities.mean((0, 1)) for record in cross])
        expected = means[max(0, len(cross) - 2)]
        assert weights.shape == (len(target), len(source))
        assert weights == pytest.approx(expected.numpy(), abs=1e-5)
        assert weights.sum(1) == pytest.approx(1, abs=1e-4)


def test_an_ensemble_has_the_mean(member: Make) -> None:
    first, second = member("encoding=relative"), member("encoding=absolute", seed=2)
    batch = [Source([5, 6, EOS], {}, target=[7, 8, EOS])]
    (both,) = cross_attention([first.model, second.model], batch)
    alone = [cross_attention([one.model], batch)[0] for one in (first, second)]
    assert both == pytest.approx((alone[0] + alone[1]) / 2, abs=1e-6)
    assert np.abs(alone[0] - alone[1]).max() > 1e-3


def test_translations_are_aligned_as_given_ones(member: Make) -> None:
    model = member("encoding=relative")
    lines = ["w1 w2 w3 w4", "", "w5"]
    options = decode(max_length_ratio=1.0)
    found = [t for t, *_ in Translator.of(model, options).translate(lines, align=True)]
    assert any(len(t.ids) > 2 for t in found)
    given = nmt.align(model, lines, [t.text for t in found])
    for translation, one in zip(found, given, strict=True):
        assert translation.alignment is not None
        assert translation.alignment.pairs == one.pairs
        assert translation.alignment.words == pytest.approx(one.words, abs=1e-5)
