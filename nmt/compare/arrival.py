"""How much of a text arrived in a translation: the measure of everything that is lost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nmt.compare.report import Share
from nmt.compare.significance import interval, resampled

ORDER = 6
"""Length of the character n-grams that are counted: a word or so.

Shorter ones arrive by chance, the more so the longer the text. Unrelated sentences of English
manual pages (man-de-en) share 16 % of the n-grams of orders 1 to 6 where they stand alone, and 34 %
where eight are joined; of 6-grams 2 % and 6 %.
"""

Floats = NDArray[np.float64]


def ngrams(text: str, orders: Iterable[int] = (ORDER,)) -> Counter[str]:
    """Character n-grams, counted, without white space."""
    letters = "".join(text.split())
    return Counter(letters[i : i + n] for n in orders for i in range(len(letters) - n + 1))


def distinctive_ngrams(
    parts: Sequence[str], orders: Sequence[int] = (ORDER,)
) -> list[Counter[str]]:
    """The n-grams of each part that no other part has, counted."""
    counted = [ngrams(part, orders) for part in parts]
    parts_with = Counter(gram for grams in counted for gram in grams)
    return [
        Counter({gram: n for gram, n in grams.items() if parts_with[gram] == 1})
        for grams in counted
    ]


def arrived(expected: Counter[str], output: Counter[str]) -> int:
    """How many n-grams an output has of those expected, each as often at most as expected."""
    return sum(min(count, output[gram]) for gram, count in expected.items())


def lost(expected: Counter[str], outputs: Sequence[Counter[str]]) -> float:
    """How many of the n-grams expected do not stand in an output; a mean over outputs."""
    return expected.total() - fmean(arrived(expected, output) for output in outputs)


def pooled_share(counts: Floats, samples: int, seed: int) -> Share | None:
    """The share that the first column is of the second, over all lines; None of nothing.

    The interval is of a bootstrap over the lines. Draws of nothing tell nothing, and are left out.
    """
    if not counts.size or not counts[:, 1].sum():
        return None
    part, whole = counts.sum(axis=0)
    sums = resampled(counts, samples, seed)
    sums = sums[sums[:, 1] > 0]
    return Share(float(part / whole), *interval(sums[:, 0] / sums[:, 1]))


def lost_share(
    references: Sequence[str], outputs: Sequence[str], samples: int, seed: int
) -> Share | None:
    """The share of the references' n-grams that do not stand in the outputs, lines pooled."""
    counts = [
        [lost(expected, [ngrams(output)]), expected.total()]
        for expected, output in zip(map(ngrams, references), outputs, strict=True)
    ]
    return pooled_share(np.array(counts), samples, seed)
