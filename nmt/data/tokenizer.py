"""Text to words and back: normalisation, and Moses tokenisation (through sacremoses) if wanted."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nmt.data import json_values
from nmt.data.normalise import FORMS, normalise

if TYPE_CHECKING:
    from sacremoses import MosesDetokenizer

    from nmt.data.moses import Moses

log = logging.getLogger(__name__)
KINDS = ("moses", "none")


class Tokenizer:
    """Splits a line of text into words, and joins words into a line of text."""

    def __init__(self, normalize: str, kind: str, language: str) -> None:
        self.normalize, self.kind, self.language = normalize, kind, language
        self._moses = _moses(language) if kind == "moses" else None

    def words(self, text: str, counts: Counter[str] | None = None) -> str:
        """Normalise and tokenise a line; single spaces separate the words."""
        return self.lines([text], counts)[0]

    def lines(self, texts: Iterable[str], counts: Counter[str] | None = None) -> list[str]:
        """Normalise and tokenise many lines, which is faster."""
        normal = [normalise(text, self.normalize, counts) for text in texts]
        return self._moses[0].lines(normal) if self._moses else normal

    def text(self, words: str) -> str:
        """Join words, separated by white space, to one line of text."""
        tokens = words.split()
        joined = self._moses[1].detokenize(tokens, unescape=False) if self._moses else words
        return " ".join(joined.split())

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` needs, as plain values."""
        return {"normalize": self.normalize, "kind": self.kind, "language": self.language}

    @classmethod
    def from_json(cls, value: Any) -> "Tokenizer":
        """Build the tokenizer again; UserError (65) if the value is not from `to_json`."""
        fields = json_values.checked(value, "tokenizer", normalize=str, kind=str, language=str)
        json_values.one_of(fields["normalize"], FORMS, "tokenizer.normalize")
        json_values.one_of(fields["kind"], KINDS, "tokenizer.kind")
        return cls(**fields)


def _moses(language: str) -> "tuple[Moses, MosesDetokenizer]":
    from sacremoses import MosesDetokenizer  # here, since it takes 0.2 s to import

    from nmt.data.moses import Moses

    return Moses(language), MosesDetokenizer(lang=language)


def warn_of_unknown(kind: str, *languages: str) -> None:
    """Warn where Moses has no rules for a language: it silently applies those of English."""
    if kind != "moses":
        return
    from sacremoses.corpus import NonbreakingPrefixes

    for language in languages:
        if language not in NonbreakingPrefixes().available_langs:
            log.warning("Moses has no rules for language %r; the English ones serve", language)
