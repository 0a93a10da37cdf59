"""Segmentation of Marian models as Hugging Face stores them: SentencePiece, and language codes.

A line may begin with `>>xx<<`, the target language of a multilingual model. That is a piece by
itself, which SentencePiece never sees (MarianTokenizer.remove_language_code of transformers).
"""

import re
from functools import cached_property

from nmt.text.unigram import Unigram
from nmt.text.vocab import SPECIALS, Vocabulary

CODE = re.compile(">>.*?<<")


class MarianSegmenter(Unigram):
    """Pieces of the SentencePiece model of a Marian model, after the code of a language."""

    kind = "marian"

    def segment(self, words: str) -> list[str]:
        """Segment words that are separated by single spaces."""
        code = CODE.match(words)
        return [*([code[0]] if code else []), *super().segment(words[code.end() if code else 0 :])]

    @cached_property
    def joins(self) -> bool:
        """True: MarianTokenizer leaves it to the model."""
        return True


def language_codes(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids of the codes, one of which each source of a multilingual model begins with."""
    pieces = enumerate(vocabulary.to_json(), start=SPECIALS)
    return {piece: i for i, piece in pieces if CODE.fullmatch(piece)}
