"""Ranks with intervals, and Spearman's correlation by hand."""

import numpy as np
import pytest

from nmt.compare.ranks import rank_intervals, spearman


def test_systems_that_change_places_have_wide_ranks() -> None:
    draw = np.random.default_rng(1)
    sure, left, right = 9 + draw.random(200), draw.random(200), draw.random(200)
    assert rank_intervals([left, sure, right], True) == [(2, 3), (1, 1), (2, 3)]
    assert rank_intervals([left, sure, right], False) == [(1, 2), (3, 3), (1, 2)]
    assert rank_intervals([sure, sure, left], True) == [(1, 1), (1, 1), (3, 3)]


def test_spearman_by_hand() -> None:
    first = np.array([[1.0, 1.0, 5.0], [2.0, 1.0, 5.0], [3.0, 2.0, 5.0], [9.0, 3.0, 5.0]])
    second = np.array([[2.0, 1.0, 1.0], [1.0, 2.0, 2.0], [4.0, 3.0, 3.0], [3.0, 4.0, 4.0]])
    straight, tied, constant = spearman(first, second)
    assert straight == pytest.approx(1 - 6 * 4 / (4 * 15))
    assert tied == pytest.approx(np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3, 4])[0, 1])
    assert np.isnan(constant)
    assert spearman(first[:, :1], -first[:, :1]) == pytest.approx(-1)
