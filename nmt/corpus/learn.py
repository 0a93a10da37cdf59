"""Learns segmenters and vocabularies of both sides from the words of the training pairs."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain

from nmt.config.data import Segmentation
from nmt.corpus.pairs import SIDES
from nmt.system.progress import track
from nmt.text.bpe import LONGEST_WORD, SEPARATOR, Bpe, parts
from nmt.text.bpe_learner import END, learn
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import Unigram, learn_model

log = logging.getLogger(__name__)
FREQUENT = 2**18  # words of a side that its segmenter remembers

Words = dict[str, list[str]]  # word -> pieces


def learn_bpe_sides(
    choice: Segmentation, tokenizers: Sequence[Tokenizer], words: Sequence[Counter[str]]
) -> list[Side]:
    """Learn merges on both sides together, and one vocabulary for each side or for both.

    The segmenters keep the pieces of the frequent words of their side.
    """
    for symbol in tokenizers[0].symbols:  # nothing is learned from them
        for word_counts in words:
            word_counts.pop(symbol, None)
    total = words[0] + words[1]
    log.info("learning up to %d merges from %d different words", choice.merges, len(total))
    merges, pieces_of = learn_merges(total, choice.merges, choice.min_frequency)
    counts = [count_pieces(word_counts, merges, pieces_of) for word_counts in words]
    if choice.shared_vocabulary:
        counts = [counts[0] + counts[1]] * 2
    sides = []
    for tokenizer, word_counts, piece_counts in zip(tokenizers, words, counts, strict=True):
        # frequent pieces first; equal ones in the order of their characters, so that the
        # numbers do not depend on the order in which processes finished
        pieces = sorted(piece_counts, key=lambda piece: (-piece_counts[piece], piece))
        segmenter = Bpe(tokenizer, merges, pieces)
        frequent = (word for word, _ in word_counts.most_common(FREQUENT))
        segmenter.remember({word: pieces_of[word] for word in frequent if word in pieces_of})
        sides.append(Side.of(segmenter, pieces))
    return sides


def learn_unigram_sides(
    choice: Segmentation, tokenizers: Sequence[Tokenizer], lines: Sequence[Iterable[str]]
) -> list[Side]:
    """Learn a SentencePiece model for each side, or one for both, from the lines of both sides."""
    texts = [map(t.without_symbols, text) for t, text in zip(tokenizers, lines, strict=True)]
    models = []
    for text in [chain(*texts)] if choice.shared_vocabulary else texts:
        log.info("learning %d unigram pieces", choice.vocabulary_size)
        models.append(learn_model(text, choice.vocabulary_size, choice.character_coverage))
    segmenters = map(Unigram, tokenizers, models * (len(SIDES) // len(models)))
    return [Side.of(segmenter, segmenter.pieces) for segmenter in segmenters]


def learn_merges(
    counts: Mapping[str, int], merges: int, min_frequency: int
) -> tuple[list[str], Words]:
    """Learn merges, most frequent first, each as its two symbols with a space between.

    Returns them, and the pieces of most of the words by these merges.
    """
    numbers = track(range(merges), "learning", [1] * merges, "merges")
    learned, symbols = learn(_dictionary(counts), numbers, min_frequency)
    head = cache(lambda symbol: symbol + SEPARATOR)  # one string for all pieces that are equal
    last = cache(lambda symbol: symbol.removesuffix(END))
    words: Words = {
        word: [*map(head, heads), last(end)]
        for word, (*heads, end) in symbols
        if word in counts and len(parts(word)) == 1  # not part of a longer one
    }
    return learned, words


def count_pieces(
    counts: Mapping[str, int], merges: Sequence[str], words: Words | None = None
) -> Counter[str]:
    """Count the pieces of one side's words by the merges; `words` has pieces of most of them."""
    segmenter, pieces_of = Bpe(Tokenizer("none", "none", ""), merges), words or {}
    counted: Counter[str] = Counter()
    for word, count in counts.items():
        for piece in pieces_of.get(word) or segmenter.segment(word):
            counted[piece] += count
    return counted


def _dictionary(counts: Mapping[str, int]) -> Mapping[str, int]:
    if all(len(word) <= LONGEST_WORD for word in counts):
        return counts
    parts_of_words: Counter[str] = Counter()
    for word, count in counts.items():
        for part in parts(word) if len(word) > LONGEST_WORD else [word]:
            parts_of_words[part] += count
    return parts_of_words
