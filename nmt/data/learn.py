"""Learns segmenters and vocabularies of both sides from the words of the training pairs."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from nmt import config
from nmt.data import wordids
from nmt.data.bpe import Bpe, count_pieces, learn_merges
from nmt.data.clean import read_words
from nmt.data.side import Side
from nmt.data.store import SIDES
from nmt.data.tokenizer import Tokenizer
from nmt.data.unigram import Unigram, learn_model
from nmt.data.vocab import Vocabulary

log = logging.getLogger(__name__)


def learn_bpe_sides(
    choice: config.BpeLearning,
    tokenizers: Sequence[Tokenizer],
    words: Sequence[Counter[str]],
    known: Sequence[Path],
) -> list[Side]:
    """Learn merges on both sides together, and one vocabulary for each side or for both.

    Writes the ids of each side's frequent words to the files `known`, for `WordIds`.
    """
    both = words[0] + words[1]
    log.info("learning %d merges from %d different words", choice.merges, len(both))
    merges, pieces_of = learn_merges(both, choice.merges, choice.min_frequency)
    counts = [count_pieces(of_words, merges, pieces_of) for of_words in words]
    if choice.shared_vocabulary:
        counts = [counts[0] + counts[1]] * 2
    sides = []
    for tokenizer, of_pieces in zip(tokenizers, counts, strict=True):
        # frequent pieces first; equal ones in the order of their characters, so that the
        # numbers do not depend on the order in which processes finished
        pieces = sorted(of_pieces, key=lambda piece: (-of_pieces[piece], piece))
        sides.append(Side(Bpe(tokenizer, merges, pieces), Vocabulary(pieces)))
    for path, of_words, side in zip(known, words, sides, strict=True):
        wordids.write(path, of_words, pieces_of, side.vocabulary)
    return sides


def learn_unigram_sides(
    choice: config.UnigramLearning, tokenizers: Sequence[Tokenizer], chunks: Sequence[Path]
) -> list[Side]:
    """Learn a SentencePiece model for each side, or one for both."""
    texts = [_chosen(chunks, side, choice.training_lines) for side in SIDES]
    corpora = [chain(*texts)] if choice.shared_vocabulary else texts
    models = []
    for corpus in corpora:
        log.info("learning %d unigram pieces", choice.vocabulary_size)
        models.append(learn_model(corpus, choice.vocabulary_size, choice.character_coverage))
    segmenters = [
        Unigram(tokenizer, model)
        for tokenizer, model in zip(tokenizers, models * (len(SIDES) // len(models)), strict=True)
    ]
    return [Side(segmenter, Vocabulary(segmenter.pieces)) for segmenter in segmenters]


def _chosen(chunks: Sequence[Path], side: str, limit: int) -> Iterator[str]:
    """Yield the lines to learn from: of pairs with two sides, all or an even sample of `limit`."""
    usable = [np.array([bool(a and b) for a, b in _both(chunk)], bool) for chunk in chunks]
    total = sum(int(flags.sum()) for flags in usable)
    wanted = min(limit, total) if limit else total
    seen = 0
    for chunk, flags in zip(chunks, usable, strict=True):
        for line, use in zip(read_words(chunk, side), flags, strict=True):
            if use:
                if (seen + 1) * wanted // total > seen * wanted // total:  # evenly spread
                    yield line
                seen += 1


def _both(chunk: Path) -> Iterator[tuple[str, str]]:
    return zip(*(read_words(chunk, side) for side in SIDES), strict=True)
