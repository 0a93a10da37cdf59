"""Intervals and tests are right as often as they say, unlike those of sacreBLEU."""

from functools import cache

import numpy as np
import pytest

from nmt.evaluation.metrics import Floats
from tests.evaluation.simulation import (
    COLUMNS,
    Drawn,
    Found,
    Population,
    bleu,
    draw,
    judge,
    population,
)
from tests.fast import fast_first

COVERED, OUTSIDE = (0.925, 0.975), (0.008, 0.045)  # 1000 trials: standard errors 0.007 and 0.005
DIFFERENT, EITHER = (0.03, 0.075), (0.008, 0.045)


@cache
def people() -> Population:
    return population(2000)


@cache
def drawn() -> Drawn:
    return draw(people(), size=150, trials=1000, samples=200)


def within(share: float, bounds: tuple[float, float]) -> bool:
    return bounds[0] < share < bounds[1]


def sound_interval(found: Found) -> bool:
    """A share of 95% alone is no proof: an interval open to one side has it too."""
    sides = within(found.above, OUTSIDE) and within(found.below, OUTSIDE)
    return within(found.covered, COVERED) and sides


def sound_test(found: Found) -> bool:
    sides = within(found.worse, EITHER) and within(found.better, EITHER)
    return within(found.different, DIFFERENT) and sides


@pytest.mark.parametrize("size", fast_first(1, [1, 5, 100]))
def test_all_scores_at_once_are_sacrebleu_s(size: int) -> None:
    sums = people().counts[:500].reshape(-1, size, 2 * COLUMNS).sum(axis=1)[:, :COLUMNS]
    sums = sums[sums[:, -1] > 0]  # four words or more
    expected = np.array([people().metric.value(row) for row in sums])
    assert bleu(sums) == pytest.approx(expected, abs=1e-9)
    assert (sums[:, 0] < sums[:, 1]).any()  # some of this is the brevity penalty
    assert (sums[:, 2:6] == 0).any() == (size == 1)  # or the smoothing
    with pytest.raises(ValueError, match="no n-gram of some order"):
        bleu(np.zeros(COLUMNS))


def test_intervals_hold_the_truth_and_tests_err_as_often_as_they_say() -> None:
    found = judge(drawn())
    assert sound_interval(found) and sound_test(found), found


def test_sacrebleu_s_own_rule_is_found_out() -> None:
    """That up to 2.6: one tail of absolute differences."""

    def as_sacrebleu(baseline: Floats, other: Floats, observed: float) -> float:
        differences = np.abs(other - baseline)
        extreme = np.count_nonzero(differences - differences.mean() >= abs(observed))
        return float((extreme + 1) / (len(differences) + 1))

    assert not sound_test(judge(drawn(), p_value=as_sacrebleu))
