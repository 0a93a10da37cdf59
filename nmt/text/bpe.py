"""Byte pair encoding with subword-nmt (Sennrich et al. 2016, arXiv:1508.07909), and BPE-dropout."""

import io
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from subword_nmt.apply_bpe import BPE, encode

from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import SPECIALS, UNK, Vocabulary

SEPARATOR = "@@"  # ends each piece but the last of its word
LONGEST_WORD = 1000  # characters; subword-nmt takes quadratic time on a word
CUT = 100  # a longer word is cut into parts of so many characters
MOST_KEPT = 2**19  # words whose pieces are kept: the first ones are mostly frequent


class Bpe:
    """Segments words by learned merges, where possible into pieces of `pieces` alone.

    Every text can be restored: the last piece of a word never ends in the separator.
    """

    kind = "bpe"

    def __init__(
        self, tokenizer: Tokenizer, merges: Sequence[str], pieces: Collection[str] = ()
    ) -> None:
        self.tokenizer, self.merges, self.pieces = tokenizer, list(merges), list(pieces)
        codes = io.StringIO("#version: 0.2\n" + "\n".join(self.merges))
        self.codes = BPE(codes, merges=len(self.merges), vocab=set(self.pieces) or None)
        self._remembered = dict[str, list[str]]()  # pieces of words

    def encode(self, text: str) -> list[str]:
        return self.segment(self.tokenizer.tokenize(text))

    def segment(self, words: str) -> list[str]:
        """Segment words that are separated by single spaces."""
        pieces: list[str] = []
        for word in words.split(" "):
            pieces += self._remembered.get(word) or self._segment(word)
        return pieces

    def remember(self, words: Mapping[str, list[str]]) -> None:
        """Keep the pieces of words, so that these are not segmented again."""
        self._remembered.update(words)

    def surfaces(self, pieces: Sequence[str]) -> list[str]:
        return [piece.removesuffix(SEPARATOR) for piece in pieces]

    def decode(self, pieces: Sequence[str]) -> str:
        n = len(SEPARATOR)
        return self.tokenizer.detokenize(
            "".join(p[:-n] if p.endswith(SEPARATOR) else p + " " for p in pieces)
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "tokenizer": self.tokenizer.to_json(),
            "merges": self.merges,
            "pieces": self.pieces,
        }

    def _segment(self, word: str) -> list[str]:
        if word in self.tokenizer.symbols:
            return [word]
        *heads, last = parts(word)
        pieces: list[str] = []
        for head in heads:  # a line feed, in no merge, follows it: so no piece ends the word
            pieces += self.codes.segment_tokens([head + "\n"])[:-1]
        pieces += self.codes.segment_tokens([last])
        self.codes.cache.clear()  # whole words are kept here
        if len(self._remembered) < MOST_KEPT and len(word) <= LONGEST_WORD:
            self._remembered[word] = pieces
        return pieces


def parts(word: str) -> list[str]:
    """Split a word that is too long, or ends in the separator, into parts to segment alone."""
    if len(word) <= LONGEST_WORD and not word.endswith(SEPARATOR):
        return [word]
    step = CUT if len(word) > LONGEST_WORD else len(word)
    cut = [word[start : start + step] for start in range(0, len(word), step)]
    if cut[-1].endswith(SEPARATOR):
        cut[-1:] = [cut[-1][:-1], cut[-1][-1]]
    return cut


class BpeDropout:
    """Segments words at random: at each step, each possible merge is skipped with a probability.

    Provilkov et al. (2020), arXiv:1910.13267. By subword-nmt, as with --dropout and --vocabulary: a
    resulting piece outside the vocabulary is split again, by the merges that made it. Where a
    character is not in the vocabulary either, the word keeps its segmentation; so do words with an
    unknown piece and the word after it, words that are split before they are segmented (over 1000
    characters, or ending in the separator), and symbols.
    """

    def __init__(self, segmenter: Bpe, vocabulary: Vocabulary, dropout: float) -> None:
        pieces = vocabulary.to_json()
        self._vocabulary, self._symbols = vocabulary, segmenter.tokenizer.symbols
        self._texts = [""] * SPECIALS + [piece.removesuffix(SEPARATOR) for piece in pieces]
        self._ends = [False] * SPECIALS + [not piece.endswith(SEPARATOR) for piece in pieces]
        self._encode = partial(
            encode,
            bpe_codes=segmenter.codes.bpe_codes,
            bpe_codes_reverse=segmenter.codes.bpe_codes_reverse,
            vocab=set(pieces),
            separator=SEPARATOR,
            version=segmenter.codes.version,
            dropout=dropout,
        )

    def sample(self, ids: list[int]) -> list[int]:
        """Sample a segmentation of a line, given by its prepared ids without EOS.

        Draws from Python's module `random`, as subword-nmt does.
        """
        ends, sampled, start = self._ends, list[int](), 0
        for end, number in enumerate(ids, start=1):
            if ends[number]:
                sampled += self._word(ids[start:end])
                start = end
        return sampled + ids[start:]

    def _word(self, word: list[int]) -> list[int]:
        """Sample a segmentation of a word, given by its prepared ids."""
        text = "".join([self._texts[number] for number in word])
        if UNK in word or len(parts(text)) > 1 or text in self._symbols:
            return word
        *heads, last = self._encode(text, cache={})  # it would keep what it draws
        ids = self._vocabulary.ids([*(head + SEPARATOR for head in heads), last])[:-1]
        return word if UNK in ids else ids
