"""Segmentations are drawn as the papers say, by seed, epoch and line alone, and fit in batches."""

import io
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE

from nmt.corpus.learn import count_pieces, learn_merges
from nmt.text.bpe import SEPARATOR, Bpe, BpeDropout
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import MarianSegmenter, NBest, Unigram, learn_model
from nmt.text.vocab import UNK, Vocabulary

PLAIN = Tokenizer("nfc", "none", "de")
WORDS = Counter({"low": 9, "lower": 8, "lowest": 7, "newer": 9, "wider": 6, "banana": 9, "x": 1})
LINES = ["the lower the newer", "wider banana and lowest", "banana low", "lowest of the low"] * 30
EVERY_CHARACTER = [c + end for c in sorted(set("".join(WORDS))) for end in ("", SEPARATOR)]


def bpe(more: Sequence[str] = EVERY_CHARACTER) -> tuple[Bpe, Vocabulary]:
    """Merges of the words, and a vocabulary with their pieces and `more`."""
    merges, _ = learn_merges(WORDS, 14, 1)
    known = sorted({*count_pieces(WORDS, merges), *more})
    return Bpe(PLAIN, merges, known), Vocabulary(known)


def unigram(kind: type[Unigram] = Unigram) -> tuple[Unigram, Vocabulary]:
    segmenter = kind(PLAIN, learn_model(LINES, 40, 1.0))
    return segmenter, Vocabulary(segmenter.pieces)


@pytest.fixture(autouse=True)
def seeded() -> None:
    random.seed(3)


def alike(first: Counter[str], second: Counter[str]) -> bool:
    """Whether two samples may be of one distribution: Pearson's chi-squared, at three sigma."""
    sizes = first.total(), second.total()
    statistic, cells = 0.0, 0
    for outcome in first | second:
        both = first[outcome] + second[outcome]
        expected = [both * size / sum(sizes) for size in sizes]
        if min(expected) < 5:
            continue
        cells += 1
        for counts, mean in zip((first, second), expected, strict=True):
            statistic += (counts[outcome] - mean) ** 2 / mean
    return cells > 2 and statistic < cells - 1 + 3 * math.sqrt(2 * (cells - 1))


@given(st.lists(st.text(st.sampled_from("lowernbaxid@é"), min_size=1), min_size=1))
def test_without_dropout_each_word_keeps_its_segmentation(words: list[str]) -> None:
    segmenter, vocabulary = bpe()
    ids = vocabulary.ids(segmenter.segment(" ".join(words)))[:-1]
    sampled = BpeDropout(segmenter, vocabulary, 0.0).sample(ids)
    assert sampled == ids


@pytest.mark.parametrize(("word", "dropout"), [("lowest", 0.5), ("banana", 0.1)])
def test_dropout_is_distributed_as_that_of_subword_nmt(word: str, dropout: float) -> None:
    symbols = (merge.replace(" ", "") for merge in bpe()[0].merges)
    half = [s.removesuffix("</w>") if s.endswith("</w>") else s + SEPARATOR for s in symbols][::2]
    segmenter, vocabulary = bpe([*half, *EVERY_CHARACTER])  # all other pieces are cut again
    sampler = BpeDropout(segmenter, vocabulary, dropout)
    ids = vocabulary.ids(segmenter.segment(word))[:-1]
    nmt_counts = Counter(" ".join(vocabulary.pieces(sampler.sample(ids))) for _ in range(3000))
    codes = io.StringIO("#version: 0.2\n" + "\n".join(segmenter.merges))
    reference = BPE(codes, vocab=set(vocabulary.to_json()))
    reference_counts = Counter(reference.process_line(word, dropout) for _ in range(3000))
    assert len(nmt_counts) > 3 and alike(nmt_counts, reference_counts)


def test_no_piece_is_unknown_that_was_known() -> None:
    """A piece outside the vocabulary is cut again; where a character is none, all stays."""
    segmenter, vocabulary = bpe(["l@@", "o@@", "w@@", "e@@", "r", "lo@@", "wer", "an@@", "a"])
    ids = vocabulary.ids(segmenter.segment("lower banana"))[:-1]
    assert UNK not in ids
    sampler = BpeDropout(segmenter, vocabulary, 0.6)
    lines = [sampler.sample(ids) for _ in range(200)]
    texts = {" ".join(vocabulary.pieces(line)) for line in lines}
    assert not any(UNK in line for line in lines)
    assert all(text.replace("@@ ", "") == "lower banana" for text in texts)
    assert "b@@" not in vocabulary.to_json() and len(texts) > 3
    assert all(text.endswith(" banana") for text in texts)


def test_words_with_an_unknown_piece_keep_their_segmentation() -> None:
    segmenter, vocabulary = bpe()
    lower = vocabulary.ids(segmenter.segment("lower"))[:-1]
    head = vocabulary.ids(["l@@"])[0]
    sampler = BpeDropout(segmenter, vocabulary, 1.0)
    characters = sampler.sample(lower)
    broken = [head, UNK, *lower]  # `l`, something unknown, and what may be the rest of the word
    assert sampler.sample([*lower, *broken, *lower]) == [*characters, *broken, *characters]
    assert sampler.sample([UNK]) == [UNK]


def test_the_best_segmentations_are_drawn_by_the_power_of_their_probability() -> None:
    segmenter, vocabulary = unigram()
    sampler = NBest(segmenter, vocabulary, 0.5, 4)
    ids = vocabulary.ids(segmenter.segment("banana low"))[:-1]
    drawn = Counter(" ".join(vocabulary.pieces(sampler.sample(ids))) for _ in range(2000))
    best, probable = segmenter.best("banana low", 4), segmenter.log_probabilities()
    weights = [math.exp(0.5 * sum(map(probable.__getitem__, way))) for way in best]
    exact = random.Random(6).choices([" ".join(way) for way in best], weights, k=20_000)
    assert len(drawn) == 4 and alike(drawn, Counter(exact))
    assert sampler.sample([*ids, UNK]) == [*ids, UNK]


def test_text_beside_a_symbol_is_sampled_as_text_alone() -> None:
    plain = Tokenizer("nfc", "none", "de", ["<x1>"])
    segmenter = Unigram(plain, learn_model(LINES, 40, 1.0))
    vocabulary = Vocabulary([*segmenter.pieces, "<x1>"])
    sampler = NBest(segmenter, vocabulary, 0.1, 8)
    ids = vocabulary.ids(segmenter.segment("banana lowest <x1> wider newer"))[:-1]
    lines = {tuple(vocabulary.pieces(sampler.sample(ids))) for _ in range(60)}
    assert {segmenter.decode(line) for line in lines} == {"banana lowest <x1> wider newer"}
    for half in (0, 1):  # on both sides of the symbol
        assert len({" ".join(line).split(" <x1> ")[half] for line in lines}) > 3


def test_the_code_of_a_language_stays_in_front() -> None:
    segmenter, _ = unigram(MarianSegmenter)
    vocabulary = Vocabulary([">>de<<", *segmenter.pieces])
    sampler = NBest(segmenter, vocabulary, 0.1, 8)
    ids = vocabulary.ids(segmenter.segment(">>de<< banana lowest"))[:-1]
    lines = {tuple(sampler.sample(ids)) for _ in range(30)}
    assert len(lines) > 3 and {line[0] for line in lines} == {ids[0]}
    assert {segmenter.decode(vocabulary.pieces(line)) for line in lines} == {">>de<< banana lowest"}
