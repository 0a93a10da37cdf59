"""Figures of groups of lines, each with an interval and a test against the first system.

A bucket of lengths or a sample of the bootstrap is a choice of lines, so that the costly part
(n-grams, TER's shifts) is done once for each system.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation.metrics import Lines, Metric
from nmt.evaluation.report import TESTED, Figure
from nmt.evaluation.significance import Floats, interval, over_seeds, p_value, resampled
from nmt.system.pool import WorkerPool, can_fork, in_order
from nmt.system.resources import cores

LINES = 2_000  # of all runs together, from which counting in other processes pays

Counts = Mapping[str, Floats]  # of one run, by metric


def count_runs(
    metrics: Sequence[Metric], systems: Sequence[Sequence[Lines]]
) -> list[list[dict[str, Floats]]]:
    """Count all translations (system, run -> lines) by each metric.

    TER takes 1 to 10 ms for a line, so that this is where the time goes: many lines are counted in
    as many processes as there are CPUs.
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
    """All figures of some lines, from the counts of each system's runs: all on the same draws.

    `about`: what else a row says, by system.
    """
    tables = {
        (s, r, metric.name): run[metric.name][lines]
        for s, runs in enumerate(counts)
        for r, run in enumerate(runs)
        for metric in metrics
        if metric.name in run
    }
    sums = dict(zip(tables, resampled(list(tables.values()), samples, seed), strict=True))
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
    where there is none. The interval and the test are about the lines and, where systems have
    several runs, about other seeds: each draw of lines scores the runs of all seeds, and
    `over_seeds` makes a sample of their mean. With one seed each this is the usual test.
    """
    known = {s: runs[~np.isnan(runs[:, 0])] for s, runs in enumerate(values)}
    # a draw of nothing tells nothing
    known = {s: np.where(np.isnan(v), v[:, :1], v) for s, v in known.items() if len(v)}
    # Student's t of shares is drawn for the observed value, too: the pins were recorded so
    first = 0 if metric.is_share else 1
    means = over_seeds([runs[:, first:] for runs in known.values()], seed)
    samples = {s: drawn[1 - first :] for s, drawn in zip(known, means, strict=True)}
    rows = []
    for s, runs in known.items():
        seeds, p = list(map(float, runs[:, 0])), None
        mean = fmean(seeds)
        if is_tested and s and 0 in known and about[s]["pairs"] >= TESTED:
            p = p_value(samples[0], samples[s], mean - fmean(known[0][:, 0]))
        low, high = interval(np.clip(samples[s], *metric.limits))
        deviation = stdev(seeds) if len(seeds) > 1 else None
        row: dict[str, Any] = {"metric": metric.name, "mean": mean, "seeds": seeds, "p": p}
        rows.append(Figure(**about[s], **row, deviation=deviation, low=low, high=high))
    return rows
