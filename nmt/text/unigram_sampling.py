"""Segmentations sampled under a unigram language model (Kudo 2018, arXiv:1804.10959).

A segmentation is drawn with a probability in proportion to p^alpha, p being the product of the
probabilities of its pieces. SentencePiece can sample as well, but its random generator is seeded
once per thread, so that a line's segmentation would depend on the lines before it.
"""

import math
import random
from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

from nmt.text.unigram import SPACE, Unigram
from nmt.text.vocab import SPECIALS, UNK, Vocabulary
from nmt.text.word_cache import WordCache

CACHED = 2**16  # words whose lattices are kept
LONGEST = 16  # pieces of such a word


class UnigramSampling:
    """Samples from all segmentations of a word by pieces of the vocabulary.

    No piece contains an inner space, so words can be sampled one after the other. A word with an
    unknown piece, or one that is not in the language model (a byte, the code of a language), keeps
    its segmentation.
    """

    def __init__(self, segmenter: Unigram, vocabulary: Vocabulary, alpha: float) -> None:
        """ValueError for a segmenter that is no unigram model, or has pieces with inner spaces."""
        probable = segmenter.log_probabilities()
        if across := next((piece for piece in probable if SPACE in piece[1:]), None):
            raise ValueError(f"the piece {across!r} goes beyond a space; choose subword_nbest=64")
        pieces = vocabulary.to_json()
        self._texts = [""] * SPECIALS + pieces
        self._begins = [False] * SPECIALS + [piece.startswith(SPACE) for piece in pieces]
        self._known = {
            piece: (number, alpha * probable[piece])
            for number, piece in enumerate(pieces, start=SPECIALS)
            if piece in probable
        }
        self._longest = max(map(len, self._known), default=1)
        self._words = WordCache(self._choices, CACHED, LONGEST)

    def line(self, ids: list[int]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS.

        Draws from Python's module `random`.
        """
        begins, sampled, start = self._begins, list[int](), 0
        for index in range(1, len(ids)):
            if begins[ids[index]]:
                sampled += self._word(tuple(ids[start:index]))
                start = index
        return sampled + self._word(tuple(ids[start:]))

    def _word(self, word: tuple[int, ...]) -> list[int]:
        """Sample a segmentation of a word, from its last piece to the first."""
        choices = self._words[word]
        if choices is None:
            return list(word)
        end, pieces = len(choices), list[int]()
        while end:
            shares, numbers, starts = choices[end - 1]
            chosen = bisect(shares, random.random()) if len(shares) > 1 else 0
            pieces.append(numbers[chosen])
            end = starts[chosen]
        return pieces[::-1]

    def _choices(self, word: tuple[int, ...]) -> "list[_Choice] | None":
        """Return the lattice of a word; None if it keeps its segmentation."""
        pieces = [self._texts[number] for number in word]
        known = all(piece in self._known for piece in pieces)
        return self._lattice("".join(pieces)) if known else None

    def _lattice(self, text: str) -> "list[_Choice]":
        """Return for the end of each character which pieces can end there, and how probably.

        Forward filtering: the weight of a position sums those of all paths to it.
        """
        weights, choices = [0.0], list[_Choice]()  # logarithms
        for end in range(1, len(text) + 1):
            paths = [
                (weights[start] + known[1], known[0], start)
                for start in range(max(0, end - self._longest), end)
                if (known := self._known.get(text[start:end])) and weights[start] > -math.inf
            ]
            weight = _log_sum([path[0] for path in paths])
            weights.append(weight)
            shares = [*accumulate(math.exp(path[0] - weight) for path in paths)]
            if shares:
                shares[-1] = 1.0  # despite rounding
            choices.append(
                _Choice(shares, [path[1] for path in paths], [path[2] for path in paths])
            )
        return choices


class _Choice(NamedTuple):
    """The pieces that can end at a position of a word."""

    shares: list[float]  # cumulative probabilities, the last one 1
    numbers: list[int]
    starts: list[int]  # where each piece begins


class NBest:
    """Samples from the best segmentations of a line, as SentencePiece finds them.

    Lines with unknown pieces, or pieces that are not in the language model, keep theirs.
    """

    def __init__(self, segmenter: Unigram, vocabulary: Vocabulary, alpha: float, most: int) -> None:
        """ValueError for a segmenter that is no unigram model."""
        self._probable = segmenter.log_probabilities()
        self._segmenter, self._vocabulary = segmenter, vocabulary
        self._alpha, self._most = alpha, most

    def line(self, ids: list[int]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS.

        Draws from Python's module `random`.
        """
        prepared = self._vocabulary.pieces(ids)
        begin = int(prepared[0] not in self._probable) if prepared else 0  # after a language code
        if UNK in ids or not all(piece in self._probable for piece in prepared[begin:]):
            return ids
        text = "".join(prepared[begin:])
        weights, lines = list[float](), list[list[int]]()
        for pieces in self._segmenter.best(text.replace(SPACE, " "), self._most):
            numbers = self._vocabulary.ids(pieces)[:-1]
            if UNK not in numbers and "".join(pieces) == text:
                weights.append(self._alpha * sum(self._probable[piece] for piece in pieces))
                lines.append(numbers)
        total, chosen, weight_of_all = 0.0, random.random(), _log_sum(weights)
        for weight, numbers in zip(weights, lines, strict=True):
            total += math.exp(weight - weight_of_all)
            if chosen < total:
                return ids[:begin] + numbers
        return ids


def _log_sum(weights: list[float]) -> float:
    """Return the logarithm of the sum of exponentials."""
    if not weights:
        return -math.inf
    largest = max(weights)
    return largest + math.log(sum(math.exp(weight - largest) for weight in weights))
