"""Bootstrap over test sentences and seeds: how sure a score is, and whether two systems differ.

Koehn (2004), Statistical Significance Tests for Machine Translation Evaluation. Two trainings that
differ in the seed alone may differ by more than two encodings (Zhou et al. 2024, Transformers Can
Achieve Length Generalization But Not Robustly), so that the unit of comparison is the seed.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CHUNK = 2**22  # drawn indices held at once (32 MiB): samples x lines need not fit the memory


def resampled(tables: Sequence[Floats], samples: int, seed: int) -> list[Floats]:
    """Sum tables of counts [lines, columns] over random draws of as many lines: [samples, columns].

    All tables have the same draws, which is what pairs two systems; so has another call with the
    same seed and as many lines. The draws are those of sacrebleu.significance.
    """
    lines = len(tables[0])
    rng = np.random.default_rng(seed)
    sums = [np.empty((samples, table.shape[1])) for table in tables]
    step = max(1, CHUNK // lines)
    for start in range(0, samples, step):
        drawn = rng.integers(lines, size=(min(step, samples - start), lines))
        times = np.stack([np.bincount(row, minlength=lines) for row in drawn])  # [step, lines]
        times = times.astype(np.float64)
        for summed, table in zip(sums, tables, strict=True):
            summed[start : start + step] = times @ table
    return sums


def interval(scores: Floats) -> tuple[float, float]:
    """The 95% percentile interval of bootstrap scores [samples], cut as sacreBLEU cuts it."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return float(ordered[cut]), float(ordered[len(ordered) - cut - 1])


def p_value(baseline: Floats, other: Floats, observed: float) -> float:
    """How often chance alone makes systems differ by `observed` or more, in either direction.

    `baseline` and `other` are scores [samples] of the same draws. Their differences, moved to
    mean zero, show what chance does. sacreBLEU 2.6 takes the absolute differences first and
    counts one tail of those: equal systems get p = 0.001 there, and at p < 0.05 it finds a
    difference about twice as often as it should (tested).
    """
    differences = other - baseline
    by_chance = np.abs(differences - differences.mean())
    # A hair of tolerance: rounding must not turn an exact tie into evidence.
    extreme = int(np.count_nonzero(by_chance >= abs(observed) - 1e-9))
    return (extreme + 1) / (len(differences) + 1)


def over_seeds(scores: Sequence[Floats], seed: int) -> list[Floats]:
    """Samples [samples] of each system's mean over all seeds that it might have had.

    `scores` [runs, samples] are those of each system's runs on the same drawn lines. Seeds deviate
    by as much in all systems: of few, the deviation of one system alone is hardly known. So each
    mean gets a deviation by Student's t, whose degrees of freedom are the runs of all systems less
    one for each. Of a system with one run, or a text, nothing is known of other seeds: its samples
    come back.

    Of two to five seeds, whose scores deviate three times as much as the mean of the lines,
    intervals cover the truth in 95 % of trials or more, and two systems that do not differ have
    p < 0.05 in 2 to 6 %. Runs drawn with replacement give 74 to 90 % and 10 to 26 %. Where one
    system deviates twice as much as the other, its intervals cover in 89 to 94 %, and p errs as
    before (simulated). Systems that deviate far more than most others have intervals that are far
    too narrow, half of them without the truth for 2 of 12 that deviate by 20 times as much: look at
    the runs' own scores.
    """
    degrees = sum(len(runs) - 1 for runs in scores)
    if not degrees:
        return [runs[0] for runs in scores]
    squares = sum(((runs - runs.mean(axis=0)) ** 2).sum(axis=0) for runs in scores)
    deviation = np.sqrt(squares / degrees)  # [samples]
    rng = np.random.default_rng(seed)
    means = []
    for runs in scores:
        by_chance = deviation * rng.standard_t(degrees, size=len(deviation)) / np.sqrt(len(runs))
        means.append(runs.mean(axis=0) + by_chance * (len(runs) > 1))
    return means
