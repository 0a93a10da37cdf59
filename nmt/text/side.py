"""One side of a language pair: how its text becomes ids, and ids text; and both from JSON."""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from nmt.config.check import read
from nmt.errors import Exit, UserError, visible
from nmt.text.bpe import Bpe
from nmt.text.protection import Protection
from nmt.text.tokenizer import Tokenizer
from nmt.text.unigram import MarianSegmenter, Unigram, language_codes
from nmt.text.vocab import UNK, Vocabulary, check_pieces, damage_error

# Text to pieces and back: `decode(encode(text))` gives the normalised text, but after the tokenizer
# of Moses, which is not undone exactly. A MarianSegmenter is a Unigram.
Segmenter: TypeAlias = Bpe | Unigram
MERGE = re.compile(r"\S+ \S+")
LONGEST = 300  # characters of a message about a file, which may contain anything


class Side:
    """A segmenter and the vocabulary that numbers its pieces."""

    def __init__(self, segmenter: Segmenter, vocabulary: Vocabulary) -> None:
        self.segmenter, self.vocabulary = segmenter, vocabulary
        self.protection = Protection(segmenter.tokenizer)

    @classmethod
    def of(cls, segmenter: Segmenter, pieces: Iterable[str]) -> "Side":
        """Return a side that knows these pieces, and the symbols of its tokenizer."""
        return cls(segmenter, Vocabulary(dict.fromkeys([*pieces, *segmenter.tokenizer.symbols])))

    def ids(self, text: str) -> list[int]:
        """Number the pieces of one line of text, ending in EOS; an empty line gives EOS alone."""
        return self.vocabulary.ids(self.segmenter.encode(text))

    @cached_property
    def blank(self) -> set[int]:
        """Ids without content: unknown pieces, tags and other symbols, EOS."""
        symbols = self.vocabulary.ids(self.segmenter.tokenizer.symbols)  # with EOS
        return {UNK, *symbols, *language_codes(self.vocabulary).values()}

    def is_unknown(self, ids: Sequence[int]) -> bool:
        """Whether a line has unknown pieces, and apart from them only tags and symbols."""
        return UNK in ids and self.blank.issuperset(ids)

    def text(self, ids: Iterable[int]) -> str:
        return self.segmenter.decode(self.vocabulary.pieces(ids))

    def to_json(self) -> dict[str, Any]:
        return {"segmenter": self.segmenter.to_json(), "vocabulary": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, value: Any) -> "Side":
        """Build the side again; UserError (65) if the value is not from `to_json`."""
        if not isinstance(value, dict) or {*value} != {"segmenter", "vocabulary"}:
            raise damage_error("side", "expected a segmenter and a vocabulary")
        segmenter = segmenter_from_json(value["segmenter"])
        return cls(segmenter, Vocabulary.from_json(value["vocabulary"]))


Sides: TypeAlias = Sequence[Side]  # source and target


@dataclass
class _Segmenter:
    """What `to_json` writes. `Any` for long lists: they are checked faster here than by `read`."""

    kind: Literal["bpe", "unigram", "marian"]
    tokenizer: Tokenizer
    merges: Any = None  # of bpe
    pieces: Any = None  # of bpe
    model: str = ""  # of SentencePiece, in base64


def segmenter_from_json(value: Any) -> Segmenter:
    """Build the segmenter whose `to_json` returned `value`; UserError (65) if there is none."""
    try:
        fields: _Segmenter = read(_Segmenter, value, "segmenter")
    except UserError as error:
        raise UserError(visible(error, LONGEST), Exit.DATA) from None
    check_pieces(fields.tokenizer.symbols, "segmenter.tokenizer.symbols")
    if fields.kind == Bpe.kind:
        merges: list[Any] = fields.merges if isinstance(fields.merges, list) else [None]
        if not all(isinstance(merge, str) and MERGE.fullmatch(merge) for merge in merges):
            raise damage_error("segmenter.merges", "expected a list of two symbols each")
        return Bpe(fields.tokenizer, merges, check_pieces(fields.pieces, "segmenter.pieces"))
    kind = MarianSegmenter if fields.kind == MarianSegmenter.kind else Unigram
    try:
        model = base64.b64decode(fields.model, validate=True)
        if not model:
            raise ValueError("empty")
        return kind(fields.tokenizer, model)
    except (ValueError, RuntimeError, OSError):
        raise damage_error("segmenter.model", "expected a SentencePiece model") from None
