"""Translations side by side: what differs from the reference, and what of the source was read."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from nmt.compare.page.text import shown
from nmt.compare.report import AMONG_WORST, MOST_DIFFERENT, UNATTENDED, ExamplePair, Report

WHYS = (MOST_DIFFERENT, AMONG_WORST)  # in this order
LEVELS = (UNATTENDED / 2, UNATTENDED, 0.5, 1.0)  # attention from which a piece is darker
CARET = "\u2038"  # words of the reference are missing here


def chosen(report: Report) -> list[tuple[str, ExamplePair]]:
    """All examples behind the names of their tests, the most different first."""
    pairs = [(test.name, example) for test in report.tests for example in test.examples]
    return sorted(pairs, key=lambda pair: WHYS.index(pair[1].why))


def differing(text: str, reference: str) -> Markup:
    """The text with those words marked that are not at their place in the reference.

    A caret stands where words of the reference are missing.

    Words are what stands between spaces; where the reference has none, every character is one.
    """
    pattern = r"\S+" if re.search(r"\s", reference.strip()) else r"\S"
    spans = [match.span() for match in re.finditer(pattern, text)]
    words = [text[a:b] for a, b in spans]
    others = re.findall(pattern, reference)
    marked = Markup()
    end = 0
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    for kind, a, b, i, j in matcher.get_opcodes():
        if a == b:
            label = f"{j - i} word{'s' * (j - i > 1)} of the reference left out"
            marked += Markup(
                '<span class="gap" role="img" aria-label="{0}" title="{0}">{1}</span>'
            ).format(label, CARET)
            continue
        first, last = spans[a][0], spans[b - 1][1]
        between, run = shown(text[end:first]), shown(text[first:last])
        wrap = Markup("{}{}") if kind == "equal" else Markup("{}<mark>{}</mark>")
        marked += wrap.format(between, run)
        end = last
    return marked + shown(text[end:])


class ReadSource(NamedTuple):
    """The source as a system read it."""

    runs: list[tuple[str, int]]  # text, and how dark it is shaded, from 0 to 4
    little: list[str]  # pieces that got little attention
    pieces: int


def as_read(pieces: Sequence[str], coverage: Sequence[float]) -> ReadSource:
    """A source by the attention that each piece got over the whole output."""
    words = joined_pieces(pieces)
    shades = zip(words, map(shade_of, coverage), strict=True)
    runs = [
        ("".join(word for word, _ in group), shade)
        for shade, group in groupby(shades, key=lambda pair: pair[1])
    ]
    missed = [word.strip() for word, a in zip(words, coverage, strict=True) if a < UNATTENDED]
    return ReadSource(runs, [word for word in missed if word], len(words))


def shade_of(attention: float) -> int:
    """How dark a piece is shaded, from 0 to 4."""
    return sum(attention >= bound for bound in LEVELS)


def joined_pieces(pieces: Sequence[str]) -> list[str]:
    """Pieces as in the text: `@@` of BPE joins to the next, `\u2581` turns to a space."""
    if any("\u2581" in piece for piece in pieces):
        return [piece.replace("\u2581", " ") for piece in pieces]
    return [piece[:-2] if piece.endswith("@@") else f"{piece} " for piece in pieces]
