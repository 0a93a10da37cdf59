"""Made-up text with what preparation meets in news: ever more words, commas, names, numbers.

The words follow Zipf's law, more steeply beyond the frequent ones, so that a longer text has
more of them (Heaps' law with an exponent near 0.7, as the news of WMT has in German and English).
"""

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scripts.bench import corpus

MEAN, LONGEST = 22, 100  # words of a line
FREQUENT, SLOPE = 2000, 1.4  # from here on the word of rank r occurs in proportion to r^-SLOPE
RANKS = 2**21  # of which a text of some million words meets a part
STEMS = 4000
ONSETS = ("b", "br", "d", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "r", "s", "sch", "t", "w")
VOWELS = ("a", "e", "i", "o", "u", "ei", "ä", "ü")
CODAS = ("", "", "l", "n", "r", "s", "t", "ng")
ENDINGS = ("en", "er", "e", "s", "ung", "es", "te", "em", "lich", "ern", "ungen", "est")
SUFFIXES = ("", "", "", *ENDINGS)
ENDS = (*"." * 8, "!", "?", "...", '."', ":")
ODD = ("z.B.", "Dr.", "3.14", "https://example.org/a?b=1", "don't", "l'an", "A.B.C.", "E-Mail",
       "--", "-", "&", "U.S.", "Nr.", "St.", "'s", "1.234,5")  # fmt: skip
# shares of the words
NUMBERS, ODDITIES, COMMAS, QUOTED, BRACKETED, HYPHENS = 0.015, 0.015, 0.08, 0.012, 0.008, 0.01
NAMES = 0.2  # share of the types with a capital letter


def text(lines: int, seed: int) -> list[str]:
    """Lines of text; the same seed gives the same."""
    draw = np.random.default_rng([seed, 4])
    counts, _ = corpus.lengths(lines, MEAN, seed, LONGEST)
    kinds = _kinds(int(counts.sum()), draw)
    words = iter(_punctuated([*map(_lexicon(kinds, draw).__getitem__, kinds.tolist())], draw))
    ends = draw.integers(0, len(ENDS), lines).tolist()
    text = [" ".join(islice(words, n)).rstrip(",.") for n in counts.tolist()]
    return [line[:1].upper() + line[1:] + ENDS[end] for line, end in zip(text, ends, strict=True)]


def _kinds(count: int, draw: np.random.Generator) -> NDArray[np.int64]:
    ranks = np.arange(1, RANKS + 1)
    rare = (ranks / FREQUENT) ** -SLOPE / FREQUENT
    heights = np.cumsum(np.where(ranks < FREQUENT, 1 / ranks, rare))
    return np.minimum(np.searchsorted(heights, draw.random(count) * heights[-1]), RANKS - 1)


def _lexicon(kinds: NDArray[np.int64], draw: np.random.Generator) -> dict[int, str]:
    """Make the word of each rank: frequent ones are short, rare ones are put together."""
    stems = [_stem(draw, 1 + int(draw.random() < n / 1000)) for n in range(STEMS)]
    ranks = np.unique(kinds)
    parts = 1 + (draw.random((len(ranks), 2)) < np.log10(ranks + 1)[:, None] / (7, 14)).sum(1)
    which = corpus.zipf(3 * len(ranks), STEMS, int(draw.integers(2**31))).reshape(-1, 3)
    suffixes = draw.integers(0, len(SUFFIXES), len(ranks)).tolist()
    names = (draw.random(len(ranks)) < NAMES).tolist()
    lexicon = {}
    for rank, n, stem, suffix, name in zip(
        ranks.tolist(), parts.tolist(), which.tolist(), suffixes, names, strict=True
    ):
        rare = "".join(stems[part] for part in stem[:n]) + SUFFIXES[suffix]
        word = stems[rank] if rank < STEMS // 10 else rare
        lexicon[rank] = word.capitalize() if name else word
    return lexicon


def _stem(draw: np.random.Generator, syllables: int) -> str:
    return "".join(
        sounds[int(draw.integers(len(sounds)))]
        for _ in range(syllables)
        for sounds in (ONSETS, VOWELS, CODAS)
    )


def _punctuated(words: list[str], draw: np.random.Generator) -> list[str]:
    """Add punctuation to some words, and replace others with numbers and oddities."""
    bounds = np.cumsum([NUMBERS, ODDITIES, COMMAS, QUOTED, BRACKETED, HYPHENS])
    what = np.searchsorted(bounds, draw.random(len(words)), side="right")
    chosen = np.flatnonzero(what < len(bounds))
    numbers = draw.integers(0, 10_000, len(chosen))
    for i, kind, n in zip(chosen.tolist(), what[chosen].tolist(), numbers.tolist(), strict=True):
        word = words[i]
        number = (str(n), f"{n / 100:.1f}", f"{n % 100}%", str(1900 + n % 130))[n % 4]
        odd, pair = ODD[n % len(ODD)], f"{word}-{words[i - 1]}"
        words[i] = (number, odd, f"{word},", f'"{word}"', f"({word})", pair)[kind]
    return words
