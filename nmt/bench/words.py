"""Made-up text with the regularities that preparation meets: Zipf's law, punctuation, numbers."""

from pathlib import Path

import numpy as np

from nmt.bench import corpus

TYPES = 30_000  # word types of a side
MEAN, LONGEST = 20, 60  # words of a line
ONSETS = ("b", "br", "d", "f", "g", "gl", "h", "k", "l", "m", "n", "p", "r", "s", "sch", "t", "w")
VOWELS = ("a", "e", "i", "o", "u", "ei", "ä", "ü")
CODAS = ("", "", "l", "n", "r", "s", "t", "ng")
ENDS = (".", ".", ".", ".", ".", "!", "?", "...")
ODD = ("z.B.", "Dr.", "1.234,5", "3.14", "1999", "https://example.org/a?b=1", "don't", "l'an",
       "50%", "(und)", '"ja"', "A.B.C.", "E-Mail", "--")  # fmt: skip


def text(lines: int, seed: int) -> list[str]:
    """Lines of text; the same seed gives the same."""
    draw = np.random.default_rng([seed, 4])
    lexicon = _lexicon(draw)
    each, _ = corpus.lengths(lines, MEAN, seed, LONGEST)
    total = int(each.sum())
    kinds = corpus.zipf(total, TYPES, seed)
    commas, odd = draw.random(total) < 0.07, draw.random(total) < 0.02
    which, ends = draw.integers(0, len(ODD), total), draw.integers(0, len(ENDS), lines)
    words = [
        ODD[w] if o else lexicon[k] + ("," if c else "")
        for k, c, o, w in zip(
            kinds.tolist(), commas.tolist(), odd.tolist(), which.tolist(), strict=True
        )
    ]
    found, start = [], 0
    for n, end in zip(each.tolist(), ends.tolist(), strict=True):
        first, *rest = words[start : start + n]
        found.append(" ".join([first[:1].upper() + first[1:], *rest]).rstrip(",") + ENDS[end])
        start += n
    return found


def write(path: Path, lines: list[str]) -> Path:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _lexicon(draw: np.random.Generator) -> list[str]:
    """Words of one to four syllables, frequent ones shorter; every tenth with a capital."""
    found: dict[str, None] = {}
    while len(found) < TYPES:
        syllables = 1 + min(3, int(np.log10(len(found) + 1) * draw.random()))
        parts = (
            sounds[int(draw.integers(len(sounds)))]
            for _ in range(syllables)
            for sounds in (ONSETS, VOWELS, CODAS)
        )
        word = "".join(parts)
        found.setdefault(word.capitalize() if len(found) % 10 == 0 else word)
    return list(found)
