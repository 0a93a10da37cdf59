"""Text to words and back: normalisation, and Moses tokenisation (through sacremoses) if wanted."""

import logging
from collections import Counter
from typing import Any

from sacremoses import MosesDetokenizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from nmt.data import plain
from nmt.data.normalise import FORMS, normalise

log = logging.getLogger(__name__)
KINDS = ("moses", "none")


class Tokenizer:
    """Splits a line of text into words, and joins words into a line of text."""

    def __init__(self, normalize: str, kind: str, language: str) -> None:
        self.normalize, self.kind, self.language = normalize, kind, language
        self._moses = _Moses(lang=language) if kind == "moses" else None
        self._undo = MosesDetokenizer(lang=language) if kind == "moses" else None

    def words(self, text: str, counts: Counter[str] | None = None) -> str:
        """Normalise and tokenise a line; words stand apart by single spaces."""
        text = normalise(text, self.normalize, counts)
        if self._moses is None or not text:
            return text
        # escape would turn quotes and brackets into XML entities, which a model has to learn
        words = self._moses.tokenize(text, escape=False, aggressive_dash_splits=False)
        return " ".join(words)

    def text(self, words: str) -> str:
        """Join words, apart by white space, to one line of text."""
        apart = words.split()
        return " ".join(
            (self._undo.detokenize(apart, unescape=False) if self._undo else words).split()
        )

    def to_json(self) -> dict[str, Any]:
        """Give what `from_json` needs, as plain values."""
        return {"normalize": self.normalize, "kind": self.kind, "language": self.language}

    @classmethod
    def from_json(cls, value: Any) -> "Tokenizer":
        """Build the tokenizer again; UserError (65) if the value is not from `to_json`."""
        found = plain.checked(value, "tokenizer", normalize=str, kind=str, language=str)
        plain.one_of(found["normalize"], FORMS, "tokenizer.normalize")
        plain.one_of(found["kind"], KINDS, "tokenizer.kind")
        return cls(**found)


def warn_of_unknown(kind: str, *languages: str) -> None:
    """Say it when Moses has no rules for a language: it then applies the English ones silently."""
    for language in languages:
        if kind == "moses" and language not in NonbreakingPrefixes().available_langs:
            log.warning("Moses has no rules for language %r; the English ones serve", language)


class _Moses(MosesTokenizer):  # type: ignore[misc]
    """The same tokenizer, without making a set of all letters anew for each abbreviation."""

    _letters = frozenset(MosesTokenizer.IsAlpha)
    _lower = frozenset(MosesTokenizer.IsLower)

    def __init__(self, lang: str) -> None:
        super().__init__(lang=lang)
        self._letters = frozenset(self.IsAlpha)  # it differs for Chinese, Japanese and Korean

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._letters.isdisjoint(text)
