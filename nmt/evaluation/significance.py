"""Figures of groups of lines, with intervals and tests: a bootstrap over sentences and seeds.

Koehn (2004), Statistical Significance Tests for Machine Translation Evaluation. Two trainings that
differ in the seed alone may differ by more than two encodings (Zhou et al. 2024, Transformers Can
Achieve Length Generalization But Not Robustly), so that the unit of comparison is the seed.

A bucket of lengths or a sample of the bootstrap is a choice of lines, so that each line is counted
once.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation.metrics import Floats, Lines, Metric
from nmt.evaluation.report import TESTED, Figure
from nmt.system.pool import WorkerPool, can_fork, in_order
from nmt.system.resources import cores

LINES = 2_000  # of all runs together, from which counting in other processes pays
CHUNK = 2**22  # drawn indices held at once (32 MiB): samples x lines need not fit the memory

Counts = Mapping[str, Floats]  # of one run, by metric


def count_runs(
    metrics: Sequence[Metric], systems: Sequence[Sequence[Lines]]
) -> list[list[dict[str, Floats]]]:
    """Count all translations (system, run -> lines) by each metric.

    Many lines are counted in as many processes as there are CPUs: TER takes 1 to 10 ms a line.
    """
    counted = {metric.name: metric.counts for metric in metrics if metric.counts}
    functions = dict.fromkeys(counted.values())  # two metrics may share their counts

    def count(lines: Lines) -> dict[str, Floats]:
        tables = {function: function(lines) for function in functions}
        return {name: tables[function] for name, function in counted.items()}

    runs = [run for system in systems for run in system]
    pays = can_fork() and sum(map(len, runs)) >= LINES
    processes = max(1, min(cores(), len(runs))) if pays else 1
    with WorkerPool(processes, "OMP_NUM_THREADS", "set it to 1", [count]) as pool:
        results = in_order(pool, count, runs)
        return [[next(results) for _ in system] for system in systems]


def score_group(
    metrics: Sequence[Metric],
    counts: Sequence[Sequence[Counts]],
    lines: NDArray[np.intp],
    about: Sequence[Mapping[str, Any]],
    samples: int,
    seed: int,
) -> list[Figure]:
    """All figures of some lines, from the counts of each system's runs; all use the same draws.

    `about`: what else a row says, by system.
    """
    tables = {
        (s, r, metric.name): run[metric.name][lines]
        for s, runs in enumerate(counts)
        for r, run in enumerate(runs)
        for metric in metrics
        if metric.name in run
    }
    sums = dict(zip(tables, resample(list(tables.values()), samples, seed), strict=True))
    rows = []
    for metric in metrics:
        values = list[Floats]()
        for s in range(len(counts)):
            keys = [key for key in tables if key[0] == s and key[2] == metric.name]
            of_runs = [list(map(metric.value, (tables[k].sum(0), *sums[k]))) for k in keys]
            values.append(np.array(of_runs).reshape(-1, 1 + samples))
        rows += figures(metric, values, about, seed)
    return rows


def figures(
    metric: Metric,
    values: Sequence[Floats],
    about: Sequence[Mapping[str, Any]],
    seed: int,
    is_tested: bool = True,
) -> list[Figure]:
    """Rows of the systems that have the figure, from the values of each one's runs.

    `values` are by system [runs, 1 + samples]: of all lines, then of the bootstrap's draws; NaN
    where there is none. The interval and the test are about other lines and, where systems have
    several runs, other seeds (`over_seeds`). With one seed each this is the usual test.
    """
    by_system = {s: runs[~np.isnan(runs[:, 0])] for s, runs in enumerate(values)}
    # a draw without counts says nothing
    by_system = {s: np.where(np.isnan(v), v[:, :1], v) for s, v in by_system.items() if len(v)}
    # Student's t of shares is drawn for the observed value, too: the figures that
    # tests/outside/pins.py keeps follow from these draws
    first = 0 if metric.is_share else 1
    means = over_seeds([runs[:, first:] for runs in by_system.values()], seed)
    samples = {s: drawn[1 - first :] for s, drawn in zip(by_system, means, strict=True)}
    rows = []
    for s, runs in by_system.items():
        seeds, p = list(map(float, runs[:, 0])), None
        mean = fmean(seeds)
        if is_tested and s and 0 in by_system and about[s]["pairs"] >= TESTED:
            p = p_value(samples[0], samples[s], mean - fmean(by_system[0][:, 0]))
        low, high = interval(np.clip(samples[s], *metric.limits))
        deviation = stdev(seeds) if len(seeds) > 1 else None
        row: dict[str, Any] = {"metric": metric.name, "mean": mean, "seeds": seeds, "p": p}
        rows.append(Figure(**about[s], **row, deviation=deviation, low=low, high=high))
    return rows


def resample(tables: Sequence[Floats], samples: int, seed: int) -> list[Floats]:
    """Sum tables of counts [lines, columns] over random draws of as many lines: [samples, columns].

    All tables have the same draws, which is what pairs two systems. Another call with the same seed
    and number of lines draws the same, as sacrebleu.significance does.
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

    `baseline` and `other` are scores [samples] of the same draws. Their differences, moved to mean
    zero, show what chance does. sacreBLEU 2.6 counts one tail of absolute differences: equal
    systems get p = 0.001 there, and it finds a difference about twice as often as it should.
    """
    differences = other - baseline
    by_chance = np.abs(differences - differences.mean())
    # A hair of tolerance: rounding must not turn an exact tie into evidence.
    extreme = int(np.count_nonzero(by_chance >= abs(observed) - 1e-9))
    return (extreme + 1) / (len(differences) + 1)


def over_seeds(scores: Sequence[Floats], seed: int) -> list[Floats]:
    """Samples [samples] of each system's mean over all seeds that it might have had.

    `scores` [runs, samples] are those of each system's runs on the same drawn lines. Two or three
    seeds hardly tell how much a system deviates, so the deviation is pooled over all systems: each
    mean deviates by Student's t, with the number of runs less the number of systems as degrees of
    freedom. A system with one run, or a text, keeps its samples.

    Simulated with two to five seeds whose scores deviate three times as much as the mean of the
    lines: intervals cover the truth in 95 % of trials or more, and equal systems have p < 0.05 in 2
    to 6 % (with runs drawn with replacement: 74 to 90 %, and 10 to 26 %); 89 to 94 % where one
    system deviates twice as much as the other. A system that deviates far more than most others
    has a far too narrow interval: look at its runs' own scores.
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
