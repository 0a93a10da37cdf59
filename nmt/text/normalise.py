"""One normalisation of all text, at training and at translation alike.

A control character or an unusual space within a line reads as a space, invisible characters go,
and each letter has one spelling (Unicode normal form). Zero-width joiner and non-joiner stay: in
Persian, in Indic scripts and in emoji they change the meaning of their neighbours.
"""

import re
import unicodedata
from collections import Counter
from typing import Literal

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # C0 with TAB, DEL, C1 with NEL, LS, PS
INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)  # soft hyphen, bidirectional marks, zero-width spaces, word joiner, byte order mark inside
ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")  # counted, whether they are kept or removed
SPACES = re.compile("[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
UNUSUAL_SPACE = re.compile("  |^ | $|[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
FORMS = ("nfc", "nfkc", "none")

# SentencePiece writes a space as U+2581, so the character itself cannot pass through it; a lone
# surrogate is no character, and no encoder takes it.
REPLACED = re.compile("[\u2581\ud800-\udfff]")


def normalise(text: str, form: str = "nfc", counts: Counter[str] | None = None) -> str:
    """Return the text in its normal form: no control character, single spaces, none at the ends.

    A second call changes nothing. `counts` counts the lines and characters that were changed.
    """
    if text.isascii() and not CONTROL.search(text):
        return _spaced(text)
    if invisible := len(ZERO_WIDTH.findall(text)):
        _count(counts, "zero_width", invisible)
    if INVISIBLE.search(text):  # first, since they keep a letter and its accent apart
        text, removed = INVISIBLE.subn("", text)
        _count(counts, "invisible", removed)
    if form != "none":
        name: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
        if not unicodedata.is_normalized(name, text):
            text = unicodedata.normalize(name, text)
            _count(counts, "normal_form")
    if CONTROL.search(text):
        text, replaced = CONTROL.subn(" ", text)
        _count(counts, "control", replaced)
    if REPLACED.search(text):
        text = REPLACED.sub(lambda match: "_" if match[0] == "\u2581" else "\ufffd", text)
    return _spaced(text)


def _spaced(text: str) -> str:
    return SPACES.sub(" ", text).strip(" ") if UNUSUAL_SPACE.search(text) else text


def _count(counts: Counter[str] | None, change: str, characters: int | None = None) -> None:
    if counts is not None:
        counts[f"{change}_lines"] += 1
        if characters is not None:
            counts[f"{change}_characters"] += characters
