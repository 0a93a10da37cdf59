"""Segmentation of Marian models as Hugging Face stores them: SentencePiece, and language codes.

A line may begin with `>>xx<<`, the target language of a multilingual model. That is a piece by
itself, which SentencePiece never sees (MarianTokenizer.remove_language_code of transformers).
"""

import re

from sentencepiece import SentencePieceProcessor

from nmt.data.tokenizer import Tokenizer
from nmt.data.unigram import Unigram
from nmt.data.vocab import SPECIALS, Vocabulary

CODE = re.compile(">>.*?<<")


class MarianSegmenter(Unigram):
    """Pieces of a SentencePiece model of another toolkit, after the code of a language."""

    kind = "marian"

    def segment(self, words: str) -> list[str]:
        """Segment words that are separated by single spaces."""
        code = CODE.match(words)
        return [*([code[0]] if code else []), *super().segment(words[code.end() if code else 0 :])]

    def _joined(self, pieces: list[str]) -> str:
        """Join pieces as the model itself does: bytes become characters."""
        return self._processor.decode(pieces)


def segmenter_of(tokenizer: Tokenizer, model: bytes) -> Unigram:
    """The segmenter of any SentencePiece model; RuntimeError where it is none.

    Pieces of single bytes become characters only where the model itself joins them.
    """
    processor = SentencePieceProcessor(model_proto=model)
    has_bytes = any(map(processor.is_byte, range(len(processor))))
    return (MarianSegmenter if has_bytes else Unigram)(tokenizer, model)


def language_codes(vocabulary: Vocabulary) -> dict[str, int]:
    """The ids of the codes, one of which each source of a multilingual model begins with."""
    pieces = enumerate(vocabulary.to_json(), start=SPECIALS)
    return {piece: i for i, piece in pieces if CODE.fullmatch(piece)}
