"""How much of a text arrived in a translation: the measure of everything that is lost."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from nmt.compare.report import Share
from nmt.compare.seeds import over_seeds
from nmt.compare.significance import Floats, interval, resampled

ORDER = 6
"""Length of the character n-grams that are counted: a word or so.

Shorter ones arrive by chance, the more so the longer the text. Unrelated sentences of English
manual pages (man-de-en) share 16 % of the n-grams of orders 1 to 6 where they stand alone, and 34 %
where eight are joined; of 6-grams 2 % and 6 %.
"""


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


def lost(expected: Counter[str], output: Counter[str]) -> int:
    """How many of the n-grams expected do not stand in an output."""
    return expected.total() - arrived(expected, output)


def sampled_share(counts: Floats, samples: int, seed: int) -> Floats:
    """The share that the first column is of the second: of all lines, then of draws of lines.

    [1 + samples]. A draw of nothing tells nothing, and has the share of all lines.
    """
    (drawn,) = resampled([counts], samples, seed)
    sums = np.concatenate([counts.sum(axis=0, keepdims=True), drawn])
    shares = sums[:, 0] / np.maximum(sums[:, 1], 1)
    return np.where(sums[:, 1] > 0, shares, shares[0])


def pooled_shares(
    systems: Sequence[Sequence[Floats]], samples: int, seed: int
) -> list[Share | None]:
    """The mean share of each system's runs, lines of [part, whole] pooled; None of nothing.

    Intervals are of a bootstrap over the lines and over seeds.
    """
    known = [s for s, runs in enumerate(systems) if runs and runs[0][:, 1].sum()]
    values = [np.array([sampled_share(run, samples, seed) for run in systems[s]]) for s in known]
    shares: list[Share | None] = [None] * len(systems)
    for s, share in zip(known, means_over_seeds(values, seed), strict=True):
        shares[s] = share
    return shares


def means_over_seeds(values: Sequence[Floats], seed: int, least: int = 0) -> list[Share]:
    """The mean of each system's runs [runs, 1 + samples], from `least` to 1, and its interval."""
    return [
        Share(float(runs[:, 0].mean()), *interval(np.clip(drawn[1:], least, 1)))
        for runs, drawn in zip(values, over_seeds(values, seed), strict=True)
    ]


def lost_share(
    references: Sequence[str], outputs: Sequence[str], samples: int, seed: int
) -> Share | None:
    """The share of the references' n-grams that do not stand in the outputs, lines pooled."""
    counts = [
        [lost(expected, ngrams(output)), expected.total()]
        for expected, output in zip(map(ngrams, references), outputs, strict=True)
    ]
    (share,) = pooled_shares([[np.array(counts).reshape(-1, 2)]], samples, seed)
    return share
