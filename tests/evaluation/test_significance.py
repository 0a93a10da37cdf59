"""Draws and intervals are those of sacreBLEU; tests err as often as they say."""

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, estimate_ci

from nmt.evaluation import significance
from nmt.evaluation.significance import interval, over_seeds, p_value, resample
from tests.evaluation.made_up import by_name, noisy, references


def test_draws_are_sacrebleu_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "CHUNK", 700)  # some draws at a time must be the same draws
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    right = references(50)
    systems = [("a", noisy(right, 0.3)), ("b", noisy(right, 0.5, seed=2))]
    _, by_metric = PairedTest([*systems], {"BLEU": BLEU()}, [right], "bs", n_samples=200)()
    scorer = by_name(right)["BLEU"]
    assert scorer.counts
    (sums,) = resample([scorer.counts(systems[1][1])], 200, seed=7)
    results: Any = by_metric["BLEU"]
    mean, half = estimate_ci(np.array([scorer.value(row) for row in sums]))
    assert mean == pytest.approx(results[1].mean, abs=1e-4)
    assert half == pytest.approx(results[1].ci, abs=1e-4)


def is_between(low: float, share: float, high: float) -> bool:
    return low < share < high


def test_intervals_hold_the_truth_and_tests_err_as_often_as_they_say() -> None:
    """600 test sets of 150 sentences, hard for both of two systems that are exactly as good."""
    rng, trials, size = np.random.default_rng(0), 600, 150
    above = below = 0
    wrong = list[float]()  # differences that are significant
    for trial in range(trials):
        difficulty = rng.gamma(4, 5, (size, 1))
        lines = 60 - difficulty + rng.gamma(4, 2.5, (size, 2))
        a, b = resample([lines], 200, trial)[0].T / size
        low, high = interval(a)
        above, below = above + (low > 50), below + (high < 50)
        gap = float(np.diff(lines.mean(axis=0))[0])
        wrong += [gap] * (p_value(a, b, gap) < 0.05)
    assert is_between(0.008, above / trials, 0.045) and is_between(0.008, below / trials, 0.045)
    assert is_between(0.03, len(wrong) / trials, 0.075)
    assert is_between(0.008, sum(gap > 0 for gap in wrong) / trials, 0.045)


def test_intervals_over_seeds_cover_the_truth_and_tests_err_as_often_as_they_say() -> None:
    rng, count = np.random.default_rng(0), 3
    trials, covered, false, significant = 300, 0, 0, 0
    for trial in range(trials):
        truths = [30, 30, 42]  # a system, one as good, a better one
        seeds = [rng.normal(truth, 3, size=count) for truth in truths]
        lines = rng.normal(0, 9, size=(120, 1))
        scores = lines + rng.normal(0, 6, size=(120, 3 * count)) + np.concatenate(seeds)
        means = resample([scores], 200, seed=trial)[0] / 120
        a, same, better = over_seeds(np.split(means.T, 3), trial)
        low, high = interval(a)
        covered += low <= 30 <= high
        observed = [of_system.mean() for of_system in np.split(scores.mean(axis=0), 3)]
        false += p_value(a, same, observed[1] - observed[0]) < 0.05
        significant += p_value(a, better, observed[2] - observed[0]) < 0.05
    assert 0.92 < covered / trials <= 0.99
    assert false / trials < 0.08  # 0.2 and more where runs are drawn with replacement
    assert significant / trials > 0.9
