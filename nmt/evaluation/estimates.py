"""Figures of groups of lines, each with an interval and a test against the first system.

A bucket of lengths or a sample of the bootstrap is a choice of lines, so that the costly part
(n-grams, TER's shifts) is done once for each system.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation.metrics import Lines, Scorer
from nmt.evaluation.report import TESTED, Figure, Metric
from nmt.evaluation.significance import Floats, interval, over_seeds, p_value, resampled
from nmt.system.pool import WorkerPool, can_fork, in_order
from nmt.system.resources import cores

LINES = 2_000  # of all runs together, from which counting in other processes pays

Counts = Mapping[str, Floats]  # of one run, by metric


def count_runs(
    used: Sequence[Scorer], systems: Sequence[Sequence[Lines]]
) -> list[list[dict[str, Floats]]]:
    """Count all translations (system, run -> lines) by each metric.

    TER takes 1 to 10 ms for a line, so that this is where the time goes: many lines are counted in
    as many processes as there are CPUs.
    """
    tables = list({scorer.counts: None for scorer in used})  # two metrics may share their counts

    def count(lines: Lines) -> dict[str, Floats]:
        by_function = {table: table(lines) for table in tables}
        return {scorer.metric.name: by_function[scorer.counts] for scorer in used}

    runs = [run for system in systems for run in system]
    pays = can_fork() and sum(map(len, runs)) >= LINES
    processes = max(1, min(cores(), len(runs))) if pays else 1
    with WorkerPool(processes, "OMP_NUM_THREADS", "set it to 1", [count]) as pool:
        results = in_order(pool, count, runs)
        return [[next(results) for _ in system] for system in systems]


class Estimate(NamedTuple):
    """A figure of one system, and what it might have been with other lines and seeds."""

    values: list[float]  # by run that has one
    samples: Floats  # [samples] of their mean

    @property
    def mean(self) -> float:
        """Over runs."""
        return fmean(self.values)


def estimates(
    scorer: Scorer,
    systems: Sequence[Sequence[Floats]],
    drawn: Sequence[Sequence[Floats]],
    seed: int,
) -> list[Estimate | None]:
    """Each system's figure from the counts of its runs on some lines; None: it has none.

    `systems` has the sums of counts, by system and run [columns], `drawn` those of the bootstrap's
    draws [samples, columns]. The interval and the test are about the lines and, where systems have
    several runs, about other seeds: each draw of lines scores the runs of all seeds, and
    `over_seeds` makes a sample of their mean. With one seed each this is the usual test.
    """
    known = [
        [(value, sums) for total, sums in zip(*pair, strict=True)
         if not math.isnan(value := scorer.value(total))]
        for pair in zip(systems, drawn, strict=True)
    ]  # fmt: skip
    if not any(known):
        return [None] * len(systems)
    # Student's t of shares is drawn for the observed value, too: the pins were recorded so
    observed = int(scorer.metric.form == "share")
    sampled = []
    for runs in filter(None, known):
        of_runs = np.array([[scorer.value(total) for total in sums] for _, sums in runs])
        own = np.array([[value] for value, _ in runs])
        of_runs = np.where(np.isnan(of_runs), own, of_runs)  # a draw of nothing tells nothing
        sampled.append(np.concatenate([own[:, :observed], of_runs], axis=1))
    means = iter(over_seeds(sampled, seed))
    return [
        Estimate([value for value, _ in runs], next(means)[observed:]) if runs else None
        for runs in known
    ]


def figures(
    metric: Metric,
    found: Sequence[Estimate | None],
    about: Sequence[Mapping[str, Any]],
    is_tested: bool = True,
) -> list[Figure]:
    """Rows of the systems that have the figure; `about`: what else a row says, by system."""
    rows, first = [], found[0]
    for one, facts in zip(found, about, strict=True):
        if one is None:
            continue
        tested = one is not first and first is not None and is_tested and facts["pairs"] >= TESTED
        low, high = interval(np.clip(one.samples, *metric.limits))
        rows.append(
            Figure(
                metric=metric.name,
                mean=one.mean,
                seeds=one.values,
                deviation=stdev(one.values) if len(one.values) > 1 else None,
                low=low,
                high=high,
                p=p_value(first.samples, one.samples, one.mean - first.mean)
                if tested and first
                else None,
                **facts,
            )
        )
    return rows


def score_group(
    used: Sequence[Scorer],
    counts: Sequence[Sequence[Counts]],
    lines: NDArray[np.intp],
    about: Sequence[Mapping[str, Any]],
    samples: int,
    seed: int,
) -> list[Figure]:
    """All figures of some lines, from the counts of each system's runs: all on the same draws."""
    names = [scorer.metric.name for scorer in used]
    tables = {
        id(run[n]): run[n][lines] for n in names for runs in counts for run in runs if n in run
    }
    sums = dict(zip(tables, resampled(list(tables.values()), samples, seed), strict=True))
    rows = []
    for scorer, name in zip(used, names, strict=True):
        keys = [[id(run[name]) for run in runs if name in run] for runs in counts]
        totals = [[tables[key].sum(0) for key in runs] for runs in keys]
        drawn = [[sums[key] for key in runs] for runs in keys]
        rows += figures(scorer.metric, estimates(scorer, totals, drawn, seed), about)
    return rows
