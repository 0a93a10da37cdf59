"""Bootstrap over test sentences: how sure a score is, and whether two systems differ.

Koehn (2004), Statistical Significance Tests for Machine Translation Evaluation.
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


def interval(scores: Floats, tests: int = 1) -> tuple[float, float]:
    """The 95% percentile interval of bootstrap scores [samples], cut as sacreBLEU cuts it.

    So wide that the intervals of so many `tests` hold together in 95% (Bonferroni).
    """
    ordered = np.sort(scores)
    cut = len(ordered) // (40 * tests)
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


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several planned tests, corrected so that all of them together err as one may.

    Holm (1979), A Simple Sequentially Rejective Multiple Test Procedure.
    """
    corrected, least = dict[int, float](), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for done, test in enumerate(order):
        least = max(least, min(1.0, (len(order) - done) * p_values[test]))
        corrected[test] = least
    return [corrected[test] for test in range(len(p_values))]
