"""Byte pair encoding with subword-nmt (Sennrich et al. 2016, arXiv:1508.07909)."""

import io
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from subword_nmt.apply_bpe import BPE

from nmt.text import json_values
from nmt.text.tokenizer import Tokenizer
from nmt.text.word_cache import WordCache

SEPARATOR = "@@"  # ends each piece but the last of its word
LONGEST_WORD = 1000  # characters; subword-nmt takes quadratic time on a word
CUT = 100  # a longer word is cut into parts of so many characters
CACHED = 2**19  # words whose pieces are kept


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
        self._cache = WordCache(self._pieces, CACHED, LONGEST_WORD)

    def encode(self, text: str) -> list[str]:
        """Normalise, tokenise and segment one line."""
        return self.segment(self.tokenizer.words(text))

    def segment(self, words: str) -> list[str]:
        """Segment words that are separated by single spaces."""
        return list(chain.from_iterable(map(self._cache.__getitem__, words.split(" "))))

    def remember(self, words: Mapping[str, list[str]]) -> None:
        """Take the pieces of words, where these are known, so that no word is segmented again."""
        self._cache.update(words)

    def surfaces(self, pieces: Sequence[str]) -> list[str]:
        """Return the characters that each piece represents."""
        return [piece.removesuffix(SEPARATOR) for piece in pieces]

    def decode(self, pieces: Sequence[str]) -> str:
        """Join pieces to one line of text."""
        n = len(SEPARATOR)
        return self.tokenizer.text(
            "".join(p[:-n] if p.endswith(SEPARATOR) else p + " " for p in pieces)
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` needs, as plain values."""
        return {
            "kind": self.kind,
            "tokenizer": self.tokenizer.to_json(),
            "merges": self.merges,
            "pieces": self.pieces,
        }

    @classmethod
    def from_json(cls, value: Any) -> "Bpe":
        """Build the segmenter again; UserError (65) if the value is not from `to_json`."""
        fields = json_values.checked(
            value, "segmenter", kind=str, tokenizer=dict, merges=list, pieces=list
        )
        for number, merge in enumerate(fields["merges"]):
            halves = merge.split(" ") if isinstance(merge, str) else []
            if len(halves) != 2 or halves != str(merge).split():
                raise json_values.damaged(f"segmenter.merges[{number}]", "expected two symbols")
        pieces = json_values.piece_list(fields["pieces"], "segmenter.pieces")
        return cls(Tokenizer.from_json(fields["tokenizer"]), fields["merges"], pieces)

    def _pieces(self, word: str) -> list[str]:
        """Segment one word."""
        if word in self.tokenizer.symbols:
            return [word]
        *heads, last = parts(word)
        pieces: list[str] = []
        for head in heads:  # a line feed, in no merge, follows it: so no piece ends the word
            pieces += self.codes.segment_tokens([head + "\n"])[:-1]
        pieces += self.codes.segment_tokens([last])
        self.codes.cache.clear()  # whole words are cached here
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
