"""Text to words and back: normalisation, and Moses tokenisation (through sacremoses) if wanted."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nmt.text import json_values
from nmt.text.normalise import FORMS, normalise

if TYPE_CHECKING:
    from sacremoses import MosesDetokenizer

    from nmt.text.moses import Moses

log = logging.getLogger(__name__)
KINDS = ("moses", "none")


class Tokenizer:
    """Splits a line of text into words, and joins words into a line of text.

    Symbols are words, wherever they occur in the line. `protected`: see nmt.text.protection.
    """

    def __init__(
        self,
        normalize: str,
        kind: str,
        language: str,
        symbols: Sequence[str] = (),
        protected: Sequence[str] = (),
    ) -> None:
        self.normalize, self.kind, self.language = normalize, kind, language
        self.symbols, self.protected = tuple(symbols), tuple(protected)
        longest_first = sorted(map(re.escape, symbols), key=len, reverse=True)
        self.symbol_pattern = f"({'|'.join(longest_first)})"
        self._symbol = re.compile(self.symbol_pattern) if symbols else None
        self._moses = _moses(language) if kind == "moses" else None

    def words(self, text: str) -> str:
        """Normalise and tokenise a line; single spaces separate the words."""
        return self.lines([text])[0]

    def lines(self, texts: Iterable[str], counts: Counter[str] | None = None) -> list[str]:
        """Normalise and tokenise many lines."""
        parts = [self.parts(normalise(text, self.normalize, counts)) for text in texts]
        text = [part for line in parts for part in line if part not in self.symbols]
        words = iter(self._moses[0].lines(text) if self._moses else text)
        return [
            " ".join(part if part in self.symbols else next(words) for part in line)
            for line in parts
        ]

    def parts(self, text: str) -> list[str]:
        """Cut text at its symbols, which are parts by themselves."""
        if self._symbol is None or not self._symbol.search(text):
            return [text]
        return [part for part in map(str.strip, self._symbol.split(text)) if part]

    def without_symbols(self, text: str) -> str:
        """Leave out the symbols of a text."""
        return " ".join(part for part in self.parts(text) if part not in self.symbols)

    def text(self, words: str) -> str:
        """Join words, separated by white space, to one line of text."""
        tokens = words.split()
        joined = self._moses[1].detokenize(tokens, unescape=False) if self._moses else words
        return " ".join(joined.split())

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` needs, as plain values."""
        plain = {"normalize": self.normalize, "kind": self.kind, "language": self.language}
        lists = {"symbols": list(self.symbols), "protected": list(self.protected)}
        return plain | {key: values for key, values in lists.items() if values}

    @classmethod
    def from_json(cls, value: Any) -> "Tokenizer":
        """Build the tokenizer again; UserError (65) if the value is not from `to_json`."""
        types: dict[str, type] = {"normalize": str, "kind": str, "language": str}
        if isinstance(value, dict):
            types |= {key: list for key in ("symbols", "protected") if key in value}
        fields = json_values.checked(value, "tokenizer", **types)
        json_values.piece_list(fields.get("symbols", []), "tokenizer.symbols")
        json_values.one_of(fields["normalize"], FORMS, "tokenizer.normalize")
        json_values.one_of(fields["kind"], KINDS, "tokenizer.kind")
        return cls(**fields)


def _moses(language: str) -> "tuple[Moses, MosesDetokenizer]":
    from sacremoses import MosesDetokenizer  # here, since it takes 0.2 s to import

    from nmt.text.moses import Moses

    return Moses(language), MosesDetokenizer(lang=language)


def warn_of_unknown(languages: Iterable[str], advice: str = "") -> None:
    """Warn where Moses has no rules for a language: it silently applies those of English."""
    from sacremoses.corpus import NonbreakingPrefixes

    for language in languages:
        if language not in NonbreakingPrefixes().available_langs:
            log.warning(
                "Moses has no rules for language %r; the English ones serve%s", language, advice
            )
