"""Scores of translations by source length: means over seeds, their intervals, paired tests.

The interval and the test are about the pairs of the test set and, where systems have several runs,
about other seeds: each bootstrap draw of lines scores the runs of all seeds, and `seeds.over_seeds`
makes a sample of their mean. With one seed each this is the usual test of two systems.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmt.compare import buckets
from nmt.compare.buckets import Bucket
from nmt.compare.ranks import rank_intervals
from nmt.compare.report import (
    ALL,
    FEW,
    SOURCE,
    TESTED,
    BucketScores,
    Metric,
    Score,
    ScoredTest,
    SystemScores,
)
from nmt.compare.scores import Counts, Scorer, length_ratio, scorers, select
from nmt.compare.seeds import over_seeds
from nmt.compare.significance import interval, p_value, resampled
from nmt.machine.pool import executor, in_order

JOBS = "--jobs", "choose fewer jobs"  # for an error of the pool
LINES = 2_000  # of all runs together, from which counting in other processes pays
BLEU = "BLEU"  # its tokens make the length ratio

JoinedParts = Sequence[tuple[list[str], list[str]]]
"""Of each joined line: the source sentences and the reference sentences that it consists of."""

RunCounts = Mapping[str, Counts]  # of one run, by metric
ScorerKey = tuple[tuple[str, ...], str, str | None, int, int]  # the arguments of `scorers`
Systems = tuple[tuple[tuple[str, ...], ...], ...]  # system, run -> lines
T = TypeVar("T")


class TranslatedTest(NamedTuple):
    """One test set with the translations of all systems; line N of everything belongs together."""

    references: list[str]
    hypotheses: list[list[list[str]]]  # system, run -> lines
    language: str = "en"  # of the references
    name: str = "test"
    about: str = ""  # a sentence on what it is
    sources: list[str] | None = None
    lengths: list[int] | None = None  # of the sources, or references; None: no buckets
    unit: str | None = None  # what a length counts
    side: str = SOURCE  # whose lengths they are, or REFERENCE
    longest_trained: Sequence[int | None] = ()  # by system, in this unit; empty: not known
    parts: JoinedParts | None = None  # None: its lines were not joined
    metrics: Sequence[str] | None = None  # the first is the main one; None: the usual ones
    tokenize: str | None = None  # sacreBLEU's tokenizer of BLEU; None: the language's


class Bootstrap(NamedTuple):
    """Settings of the bootstrap, which resamples the lines of each bucket of lengths."""

    bounds: Sequence[int]  # last length of each bucket but the last
    samples: int = 1000
    seed: int = 12345
    jobs: int = 1  # processes that count


def scorers_of(test: TranslatedTest, bootstrap: Bootstrap) -> list[Scorer]:
    """The metrics of a test, in order.

    Raises UserError for a tokenizer that is not installed and for a metric that the language has
    not.
    """
    return select(list(_scorers(*_key(test, bootstrap)).values()), test.metrics)


def count(
    test: TranslatedTest, bootstrap: Bootstrap, metrics: Sequence[str]
) -> list[list[RunCounts]]:
    """Count all translations by each metric, and by BLEU: system, run -> metric -> table.

    TER takes 1 to 10 ms for a line, so that this is where the time goes: many lines are
    counted in `bootstrap.jobs` processes, and the last test's counts are remembered, which a
    test by reference length after one by source length needs again.
    """
    names = tuple(dict.fromkeys([*metrics, BLEU]))
    systems = tuple(tuple(map(tuple, runs)) for runs in test.hypotheses)
    return _counted(_key(test, bootstrap), names, systems, bootstrap.jobs)


@lru_cache(maxsize=1)
def _counted(
    key: ScorerKey, names: tuple[str, ...], systems: Systems, jobs: int
) -> list[list[RunCounts]]:
    return by_run(partial(_count, key, names), systems, jobs)


def by_run(
    function: Callable[[Sequence[str]], T], systems: Sequence[Sequence[Sequence[str]]], jobs: int
) -> list[list[T]]:
    """The function of the lines of each run (system, run), in up to so many processes.

    In this one for few lines, which are done before a second has started.
    """
    runs = [run for system in systems for run in system]
    processes = max(1, min(jobs, len(runs))) if sum(map(len, runs)) >= LINES else 1
    with executor(processes, *JOBS) as pool:
        results = in_order(pool, function, runs)
        return [[next(results) for _ in system] for system in systems]


def lines_of(row: BucketScores, lengths: Sequence[int]) -> NDArray[np.intp]:
    """Indices of the pairs of a row, in order."""
    return buckets.indices(Bucket(row.low, row.high), lengths)


def _key(test: TranslatedTest, bootstrap: Bootstrap) -> ScorerKey:
    return tuple(test.references), test.language, test.tokenize, bootstrap.samples, bootstrap.seed


def _count(key: ScorerKey, names: Sequence[str], hypotheses: Sequence[str]) -> RunCounts:
    """Count one run's translations by some metrics, in any process."""
    by_name = _scorers(*key)
    return {name: by_name[name].counts(hypotheses) for name in names}


@lru_cache(maxsize=1)  # the runs of one test come one after another
def _scorers(
    references: tuple[str, ...], language: str, tokenize: str | None, samples: int, seed: int
) -> dict[str, Scorer]:
    return {s.name: s for s in scorers(references, language, tokenize, samples, seed)}


def score_counts(
    test: TranslatedTest,
    bootstrap: Bootstrap,
    used: Sequence[Scorer],
    counts: Sequence[Sequence[RunCounts]],
) -> ScoredTest:
    """Score all systems in each bucket of source lengths, and on all pairs, from their counts.

    A bucket's score is the corpus score of its pairs, no mean over sentences. The first system
    is the baseline of the paired tests.
    """
    ranges = [] if test.lengths is None else buckets.from_bounds(bootstrap.bounds)
    limits = test.longest_trained or [None] * len(test.hypotheses)
    rows = []
    for name, bucket in [*((b.name, b) for b in ranges), (ALL, Bucket(0, None))]:
        lines = buckets.indices(bucket, test.lengths or [0] * len(test.references))
        beyond = [bucket.beyond(longest) for longest in limits]
        cells = _cells(bootstrap, used, counts, beyond, lines)
        rows.append(BucketScores(name, *bucket, len(lines), 0 < len(lines) < FEW, cells))
    return ScoredTest(
        name=test.name,
        about=test.about,
        unit=test.unit,
        longest=max(test.lengths or (), default=None),
        metrics=[Metric(s.name, s.title, s.higher_is_better, s.signature) for s in used],
        rows=rows,
        side=test.side,
        longest_trained=[] if test.side == SOURCE else list(limits),
    )


def _cells(
    bootstrap: Bootstrap,
    used: Sequence[Scorer],
    counts: Sequence[Sequence[RunCounts]],
    beyond: Sequence[bool],
    lines: NDArray[np.intp],
) -> list[SystemScores]:
    """All systems on some lines; an empty bucket is never scored."""
    if not len(lines):
        return [SystemScores({}, None, far) for far in beyond]
    samples = sampled_runs(bootstrap, used, counts, lines)
    scores = {
        scorer.name: _scores(
            scorer,
            [[run[scorer.name][lines].sum(axis=0) for run in runs] for runs in counts],
            over_seeds(samples[scorer.name], bootstrap.seed),
            is_tested=len(lines) >= TESTED,
        )
        for scorer in used
    }
    cells = []
    for s, (runs, far) in enumerate(zip(counts, beyond, strict=True)):
        ratio = mean_of_known(length_ratio(run[BLEU][lines]) for run in runs)
        cells.append(SystemScores({name: scores[name][s] for name in scores}, ratio, far))
    return cells


def _scores(
    scorer: Scorer,
    sums: Sequence[Sequence[NDArray[np.float64]]],
    samples: Sequence[NDArray[np.float64]],
    is_tested: bool,
) -> list[Score]:
    """All systems by one metric, from the sums of their runs and samples of their means."""
    seeds = [[scorer.score(of_run) for of_run in runs] for runs in sums]
    means = list(map(fmean, seeds))
    most = 100.0 if scorer.higher_is_better else None  # a deviation of seeds knows no bounds
    ranks = rank_intervals(samples, scorer.higher_is_better) if is_tested else []
    return [
        Score(
            means[s],
            stdev(seeds[s]) if len(seeds[s]) > 1 else None,
            seeds[s],
            *interval(np.clip(sampled, 0.0, most)),
            p_value(samples[0], sampled, means[s] - means[0]) if s and is_tested else None,
            ranks=list(ranks[s]) if len(ranks) > 1 else None,
        )
        for s, sampled in enumerate(samples)
    ]


def sampled_runs(
    bootstrap: Bootstrap,
    used: Sequence[Scorer],
    counts: Sequence[Sequence[RunCounts]],
    lines: NDArray[np.intp],
) -> dict[str, list[NDArray[np.float64]]]:
    """Scores of each run over the same draws of some lines: metric -> system -> [runs, samples]."""
    tables = [run[scorer.name][lines] for scorer in used for runs in counts for run in runs]
    sums = iter(resampled(tables, bootstrap.samples, bootstrap.seed))
    return {
        scorer.name: [
            np.array([[scorer.score(row) for row in next(sums)] for _ in runs]) for runs in counts
        ]
        for scorer in used
    }


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
