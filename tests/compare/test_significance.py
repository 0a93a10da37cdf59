"""Draws and intervals are those of sacreBLEU; the rest by hand. See test_simulation too."""

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, estimate_ci

from nmt.compare import significance
from nmt.compare.scores import scorers
from nmt.compare.significance import holm, interval, p_value, resampled
from tests.compare.made_up import noisy, references


def test_draws_are_sacrebleu_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "CHUNK", 700)  # some draws at a time must be the same draws
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    right = references(50)
    systems = [("a", noisy(right, 0.3)), ("b", noisy(right, 0.5, seed=2))]
    _, found = PairedTest([*systems], {"BLEU": BLEU()}, [right], "bs", n_samples=200)()
    scorer = scorers(right, "en", None, 200, 7)[0]
    (sums,) = resampled([scorer.counts(systems[1][1])], 200, seed=7)
    results: Any = found["BLEU"]
    mean, half = estimate_ci(np.array([scorer.score(row) for row in sums]))
    assert mean == pytest.approx(results[1].mean, abs=1e-4)
    assert half == pytest.approx(results[1].ci, abs=1e-4)


def test_an_interval_is_cut_at_both_ends_alike() -> None:
    assert interval(np.arange(200.0)) == (5, 194)


def test_the_sign_of_a_difference_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(30, 1, 500), rng.normal(31.5, 1, 500)
    assert p_value(a, b, 1.5) == p_value(b, a, -1.5) < 1


def test_one_seed_one_result() -> None:
    counts = np.arange(20.0).reshape(10, 2)
    again, part = resampled([counts, counts[:, 1:]], 50, 3)
    assert (resampled([counts], 50, 3)[0] == again).all()
    assert (resampled([counts], 50, 4)[0] != again).any()
    assert (again[:, 1:] == part).all()


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0] and holm([]) == []
