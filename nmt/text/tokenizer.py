"""Text to words and back: normalisation, and Moses tokenisation (through sacremoses) if wanted.

Normalisation is one for all text, at training and at translation alike. A control character or an
unusual space within a line reads as a space, invisible characters go, and each letter has one
spelling (Unicode normal form). Zero-width joiner and non-joiner stay: in Persian, in Indic scripts
and in emoji they change the meaning of their neighbours.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from nmt.config.check import to_plain
from nmt.text.quotes import join_marked, mark_quotes

log = logging.getLogger(__name__)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # C0 with TAB, DEL, C1 with NEL, LS, PS
INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)  # soft hyphen, bidirectional marks, zero-width spaces, word joiner, byte order mark inside
SPACES = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
UNUSUAL_SPACE = re.compile("  |^ | $|[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")

# SentencePiece writes a space as U+2581, so the character itself cannot pass through it; a lone
# surrogate is no character, and no encoder takes it.
REPLACED = re.compile("[\u2581\ud800-\udfff]")


@dataclass(eq=False)
class Tokenizer:
    """Splits a line of text into words, and joins words into a line of text.

    Symbols are words, wherever they occur in the line. `protected`: see nmt.text.protection.
    """

    normalize: Literal["nfc", "nfkc", "none"]
    kind: Literal["moses", "none"]
    language: str
    symbols: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        longest_first = sorted(map(re.escape, self.symbols), key=len, reverse=True)
        self.symbol_pattern = f"({'|'.join(longest_first)})"
        self._symbol = re.compile(self.symbol_pattern) if self.symbols else None
        self._moses = _load_moses(self.language) if self.kind == "moses" else None

    def tokenize(self, text: str) -> str:
        """Normalise and tokenise a line; single spaces separate the words."""
        parts = self.split_at_symbols(normalise(text, self.normalize))
        return " ".join(part if part in self.symbols else self._split(part) for part in parts)

    def split_at_symbols(self, text: str) -> list[str]:
        """Cut text at its symbols, which are parts by themselves."""
        if self._symbol is None or not self._symbol.search(text):
            return [text]
        return [part for part in map(str.strip, self._symbol.split(text)) if part]

    def without_symbols(self, text: str) -> str:
        return " ".join(part for part in self.split_at_symbols(text) if part not in self.symbols)

    def detokenize(self, words: str) -> str:
        """Join words, separated by white space, to one line of text."""
        if self._moses:
            marked = mark_quotes(words.split(), self.language)
            words = join_marked(self._moses[1].detokenize(marked, unescape=False))
        return " ".join(words.split())

    def _split(self, text: str) -> str:
        if self._moses is None:
            return text
        # escape would turn quotes and brackets into XML entities, which a model has to learn
        words = self._moses[0].tokenize(text, escape=False, aggressive_dash_splits=False)
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in to_plain(self).items() if value != []}


def normalise(text: str, form: str = "nfc") -> str:
    """Return the text in its normal form: no control character, single spaces, none at the ends.

    A second call changes nothing.
    """
    if text.isascii() and not CONTROL.search(text):
        return _spaced(text)
    text = INVISIBLE.sub("", text)  # first, since they keep a letter and its accent apart
    if form != "none":
        text = unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)
    text = CONTROL.sub(" ", text)
    if REPLACED.search(text):
        text = REPLACED.sub(lambda match: "_" if match[0] == "\u2581" else "\ufffd", text)
    return _spaced(text)


def _spaced(text: str) -> str:
    return SPACES.sub(" ", text).strip(" ") if UNUSUAL_SPACE.search(text) else text


def _load_moses(language: str) -> tuple[Any, Any]:
    """Return the tokenizer and the detokenizer of a language.

    They give the words that sacremoses gives, but do not compute its constants for each word.
    """
    from sacremoses import MosesDetokenizer, MosesTokenizer  # here: it takes 0.2 s to import

    moses = MosesTokenizer(lang=language)
    moses.NONBREAKING_PREFIXES = frozenset(moses.NONBREAKING_PREFIXES)
    moses.NUMERIC_ONLY_PREFIXES = frozenset(moses.NUMERIC_ONLY_PREFIXES)
    # it makes sets of all letters again for each word that ends in a full stop
    moses.islower = frozenset(moses.IsLower).issuperset
    moses.isanyalpha = partial(_overlaps, frozenset(moses.IsAlpha))
    # so large a set as all of Chinese is searched one by one, but ranges of it are not
    pattern, padded = moses.PAD_NOT_ISALNUM
    ranges = _ranges(moses.IsAlnum)
    moses.PAD_NOT_ISALNUM = re.compile(pattern.pattern.replace(moses.IsAlnum, ranges)), padded
    return moses, MosesDetokenizer(lang=language)


def _overlaps(letters: frozenset[str], text: str) -> bool:
    return not letters.isdisjoint(text)


def _ranges(characters: str) -> str:
    """Write a set of characters as ranges, for a pattern."""
    spans: list[list[int]] = []
    for code in sorted(set(map(ord, characters))):
        if spans and code == spans[-1][1] + 1:
            spans[-1][1] = code
        else:
            spans.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in spans)


def warn_of_unknown(languages: Iterable[str], advice: str = "") -> None:
    """Warn where Moses has no rules for a language: it silently applies those of English."""
    from sacremoses.corpus import NonbreakingPrefixes

    for language in languages:
        if language not in NonbreakingPrefixes().available_langs:
            log.warning(
                "Moses has no rules for language %r; the English ones serve%s", language, advice
            )
