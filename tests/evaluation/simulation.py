"""How often bootstrap intervals hold the truth, and how often equal systems are called different.

The truth is known because it is made: a population of sentences, each with the BLEU counts of
two made-up systems. Test sets are drawn from it, and what nmt.evaluation.significance says of each
is compared with the score of the whole population. Both systems are corrupted references, made
in the same way, and swapped at random in each sentence: they are exactly as good as each other.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nmt.evaluation.metrics import Floats, Metric, make_metrics
from nmt.evaluation.significance import interval, p_value, resampled

COLUMNS = 10  # of BLEU: lengths of hypothesis and reference, then matches and n-grams, n = 1-4
LEVEL = 0.05

PValue = Callable[[Floats, Floats, float], float]


class Population(NamedTuple):
    """BLEU counts [sentences, 2 x COLUMNS] of two systems side by side."""

    counts: Floats
    metric: Metric

    @property
    def truth(self) -> float:
        """The corpus score of all sentences, for either system as likely as not."""
        return float(bleu(self.counts.reshape(-1, 2, COLUMNS).sum(axis=(0, 1))))


class Drawn(NamedTuple):
    """Many test sets of one size, their scores, and those of their bootstrap samples."""

    truth: float  # what their scores estimate
    scores: Floats  # [trials, 2] of both systems
    resampled: Floats  # [trials, samples, 2]


class Found(NamedTuple):
    """What became of many test sets, as shares of them."""

    above: float  # intervals that lie above the truth; 0.025 if all is well
    below: float  # intervals that lie below it; 0.025
    worse: float  # tests that call the second system worse, at p < 0.05; 0.025
    better: float  # or better; 0.025

    @property
    def covered(self) -> float:
        """Intervals that hold the truth."""
        return 1 - self.above - self.below

    @property
    def different(self) -> float:
        """Equal systems called different."""
        return self.worse + self.better


def population(sentences: int, seed: int = 0) -> Population:
    """Made-up references of news-like lengths, and what two systems make of them.

    Length matters as it does for real systems: longer sentences are translated worse, and beyond
    50 words three in ten lose their second half. Some sentences are hard for both systems, and
    each has its own luck besides.
    """
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(2.85, 0.6, sentences)), 2, 120).astype(np.int64)
    references = [_words(rng, length) for length in lengths]
    hard = -0.4 + 0.015 * (lengths - 20) + rng.normal(0, 0.7, sentences)
    systems: list[list[str]] = [[], []]
    for reference, difficulty in zip(references, hard, strict=True):
        for own in systems:
            own.append(" ".join(_corrupted(rng, reference, difficulty + rng.normal(0, 0.5))))
    lines = [" ".join(words) for words in references]
    metric = make_metrics(["BLEU"], lines, "en", "none", 0, 0)[0]
    assert metric.counts
    counts = np.stack([metric.counts(own) for own in systems], axis=1)  # [sentences, 2, COLUMNS]
    swapped = rng.random(sentences) < 0.5
    counts[swapped] = counts[swapped][:, ::-1]
    return Population(counts.reshape(sentences, -1), metric)


def bleu(sums: Floats) -> Floats:
    """Corpus BLEU of summed counts [..., COLUMNS]; the same as Metric.value, all at once.

    An order without a match is smoothed as there: the first counts as half a match, the next as
    a quarter. Raises ValueError where there is no n-gram of some order at all.
    """
    hypothesis, reference = sums[..., 0], sums[..., 1]
    matched, there = sums[..., 2:6], sums[..., 6:]
    if not there.all():
        raise ValueError("no n-gram of some order; draw more sentences")
    none = matched == 0
    matched = np.where(none, 0.5 ** none.cumsum(axis=-1), matched)
    precision = np.log(matched / there).mean(axis=-1)
    return 100 * np.exp(np.minimum(0, 1 - reference / hypothesis) + precision)


def draw(people: Population, size: int, trials: int, samples: int, seed: int = 0) -> Drawn:
    """Draw test sets of `size` sentences, both systems swapped at random in each sentence."""
    rng = np.random.default_rng([seed, size])
    scores, again = np.empty((trials, 2)), np.empty((trials, samples, 2))
    for trial in range(trials):
        test = people.counts[rng.integers(len(people.counts), size=size)]
        swapped = rng.random(size) < 0.5
        test[swapped] = np.roll(test[swapped], COLUMNS, axis=1)
        scores[trial] = bleu(test.sum(axis=0).reshape(2, COLUMNS))
        again[trial] = bleu(resampled([test], samples, trial)[0].reshape(samples, 2, COLUMNS))
    return Drawn(people.truth, scores, again)


def judge(drawn: Drawn, p_value: PValue = p_value) -> Found:
    """Ask for an interval (of the first system) and a p-value for each test set."""
    pairs = list(zip(drawn.scores[:, 1] - drawn.scores[:, 0], drawn.resampled, strict=True))
    bounds = np.array([interval(again[:, 0]) for _, again in pairs])  # [trials, 2]
    p = np.array([p_value(again[:, 0], again[:, 1], float(gap)) for gap, again in pairs])
    gaps = np.where(p < LEVEL, drawn.scores[:, 1] - drawn.scores[:, 0], 0)
    return Found(
        above=float((bounds[:, 0] > drawn.truth).mean()),
        below=float((bounds[:, 1] < drawn.truth).mean()),
        worse=float((gaps < 0).mean()),
        better=float((gaps > 0).mean()),
    )


def _words(rng: np.random.Generator, count: int) -> list[str]:
    """Words of which some are far more frequent than others."""
    return [f"w{min(word, 5000)}" for word in rng.zipf(1.3, size=count)]


def _corrupted(rng: np.random.Generator, words: list[str], difficulty: float) -> list[str]:
    """Some words replaced, dropped or added, and now and then half of a long sentence gone."""
    if len(words) > 50 and rng.random() < 0.3:
        words = words[: len(words) // 2]
    wrong = 1 / (1 + np.exp(-difficulty))
    found: list[str] = []
    for word, chance in zip(words, rng.random(len(words)) / wrong, strict=True):
        if chance > 1 or chance < 0.2:
            found.append(word)
        if chance < 0.8:  # below 0.2 besides the right word, below 0.8 in its place; else dropped
            found += _words(rng, 1)
    return found or words[:1]
