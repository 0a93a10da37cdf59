"""Intervals over seeds that cover, and tests that err as often as they say."""

import numpy as np
import pytest

from nmt.compare.seeds import over_seeds
from nmt.compare.significance import interval, p_value, resampled


@pytest.mark.parametrize(("count", "covers"), [(2, (0.92, 1.0)), (3, (0.92, 0.99))])
def test_intervals_cover_the_truth_and_tests_err_as_often_as_they_say(
    count: int, covers: tuple[float, float]
) -> None:
    rng = np.random.default_rng(0)
    trials, covered, false, found = 300, 0, 0, 0
    for trial in range(trials):
        truths = [30, 30, 42]  # a system, one as good, a better one
        seeds = [rng.normal(truth, 3, size=count) for truth in truths]
        lines = rng.normal(0, 9, size=(120, 1))
        scores = lines + rng.normal(0, 6, size=(120, 3 * count)) + np.concatenate(seeds)
        means = resampled([scores], 200, seed=trial)[0] / 120
        a, same, better = over_seeds(np.split(means.T, 3), trial)
        low, high = interval(a)
        covered += low <= 30 <= high
        observed = [of_system.mean() for of_system in np.split(scores.mean(axis=0), 3)]
        false += p_value(a, same, observed[1] - observed[0]) < 0.05
        found += p_value(a, better, observed[2] - observed[0]) < 0.05
    assert covers[0] < covered / trials <= covers[1]
    assert false / trials < 0.08  # 0.2 and more where runs are drawn with replacement
    assert found / trials > (0.5 if count == 2 else 0.9)


def test_single_runs_have_their_own_samples() -> None:
    alone, one, several = np.random.default_rng(1).normal(30, 1, (3, 1, 50))
    (kept,) = over_seeds([alone], 7)
    assert (kept == alone[0]).all()
    kept, spread = over_seeds([one, np.concatenate([several, several + 5])], 7)
    assert (kept == one[0]).all()
    assert np.std(spread - several[0] - 2.5) > 2
