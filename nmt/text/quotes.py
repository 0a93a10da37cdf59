# ruff: noqa: RUF001, RUF002, RUF003 (it is about these characters)
"""Spaces around curly quotes and apostrophes when words are joined to text.

Moses makes three words of "It’s", and its detokenizer knows no closing ”. Here a quote closes the
one that is open in its line; where none is, the language decides whether it opens one: „so“, »so«.
"""

import re
from collections.abc import Sequence

CLOSERS = {
    "„": '“”"', "“": '”"', "”": "”", "‚": "‘’", "‘": "’", "«": "»", "»": "«»", "‹": "›", "›": "‹›"
}  # fmt: skip
LOW = ("bg", "cs", "da", "de", "et", "hr", "is", "lt", "lv", "mk", "sk", "sl", "sr")  # „so“, »so«
CONTRACTED = re.compile("s|t|d|m|re|ve|ll", re.IGNORECASE)  # what follows the apostrophe
ELIDED = re.compile("em|til|tis|twas|cause|[0-9]+s?", re.IGNORECASE)  # stands for a longer word
TO_NEXT, TO_LAST = "\x01", "\x02"  # no space on this side of a word; normalised text has neither


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
