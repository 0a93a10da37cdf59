# ruff: noqa: RUF001, RUF003 (quotation marks of many languages)
"""Text to words and back: normalisation, and Moses tokenisation (through sacremoses) if configured.

All text is normalised alike, in training and in translation. A control character or an
unusual space within a line reads as a space, invisible characters go, and each letter has one
spelling (Unicode normal form). Zero-width joiner and non-joiner stay: in Persian, in Indic scripts
and in emoji they change the meaning of their neighbours.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from nmt.config.check import to_plain

log = logging.getLogger(__name__)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # C0 with TAB, DEL, C1 with NEL, LS, PS
INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)  # soft hyphen, bidirectional marks, zero-width spaces, word joiner, byte order mark inside
SPACES = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
UNUSUAL_SPACE = re.compile("  |^ | $|[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")

# Moses makes three words of "It’s", and its detokenizer knows no closing ”. When words are joined,
# a quote closes the one that is open in its line; if none is, the language decides whether it
# opens one: „so“, »so«.
CLOSERS = {
    "„": '“”"', "“": '”"', "”": "”", "‚": "‘’", "‘": "’", "«": "»", "»": "«»", "‹": "›", "›": "‹›"
}  # fmt: skip
LOW = ("bg", "cs", "da", "de", "et", "hr", "is", "lt", "lv", "mk", "sk", "sl", "sr")  # „so“, »so«
CONTRACTED = re.compile("s|t|d|m|re|ve|ll", re.IGNORECASE)  # what follows the apostrophe
ELIDED = re.compile("em|til|tis|twas|cause|[0-9]+s?", re.IGNORECASE)  # stands for a longer word
TO_NEXT, TO_LAST = "\x01", "\x02"  # no space on this side of a word; normalised text has neither

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


def mark_quotes(words: Sequence[str], language: str) -> list[str]:
    """Mark the side of quotes and apostrophes on which there is no space."""
    marked, opened = list[str](), list[str]()
    for i, word in enumerate(words):
        last, following = words[i - 1] if i else "", words[i + 1] if i + 1 < len(words) else ""
        partner = next((quote for quote in reversed(opened) if word in CLOSERS[quote]), "")
        if word == "’" and (not partner or CONTRACTED.fullmatch(following)):
            word = _mark_apostrophe(last, following)
        elif partner and (word != '"' or not {*CLOSERS[partner]} & {*words[i + 1 :]}):
            del opened[opened.index(partner) :]
            word = TO_LAST + word + (TO_NEXT if following[:1] == "-" != following else "")
        elif word in CLOSERS and not (language == "fr" and word in "«»‹›"):  # « so »
            if opens := not i or _opens(word, words[i + 1 :], language):
                opened.append(word)
            word = word + TO_NEXT if opens else TO_LAST + word
        marked.append(word)
    return marked


def join_marked(text: str) -> str:
    """Remove marks, and the spaces that they forbid."""
    return re.sub(f"{TO_NEXT} ?| ?{TO_LAST}", "", text)


def _mark_apostrophe(last: str, following: str) -> str:
    if not following[:1].isalnum() or last[-1:] in {*".,!?"}:
        return TO_LAST + "’"
    if not last[-1:].isalnum() or (ELIDED.fullmatch(following) and not last.isdigit()):
        return "’" + TO_NEXT  # ’90s
    ends = (last[-1:] in "sS" and len(last) > 1) or (last.isdigit() and not following.isdigit())
    return TO_LAST + "’" + ("" if ends and not CONTRACTED.fullmatch(following) else TO_NEXT)


def _opens(quote: str, following: Sequence[str], language: str) -> bool:
    """Whether a quote that closes none opens one, in this line or beyond it."""
    if quote == "”" and language not in ("fi", "sv"):
        return False
    if {*CLOSERS[quote]} & {*following}:
        return True
    return quote in ("„‚»›" if language in LOW else "„“‚‘«‹")
