"""Scores of translations by source length: means over seeds, their intervals, paired tests.

The interval and the test are about the pairs of the test set and, where systems have several runs,
about other seeds: each bootstrap draw of lines scores the runs of all seeds, and `seeds.over_seeds`
makes a sample of their mean. With one seed each this is the usual test of two systems.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import NamedTuple

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
from nmt.compare.scores import Scorer, length_ratio, scorers, select
from nmt.compare.seeds import over_seeds
from nmt.compare.significance import interval, p_value, resampled
from nmt.machine.pool import executor, in_order

BLOCK = 2**24  # numbers that are resampled at once (128 MiB); more columns mean more blocks
JOBS = "--jobs", "choose fewer jobs"  # for an error of the pool
LINES = 2_000  # of all runs together, from which counting in other processes pays
BLEU = "BLEU"  # its tokens make the length ratio

JoinedParts = Sequence[tuple[list[str], list[str]]]
"""Of each joined line: the source sentences and the reference sentences that it consists of."""

CountTable = NDArray[np.float32]  # [lines, columns] counts: whole numbers far below 2**24, so exact
RunCounts = Mapping[str, CountTable]  # of one run, by metric
ScorerKey = tuple[tuple[str, ...], str, str | None, int, int]  # the arguments of `scorers`
Task = tuple[ScorerKey, tuple[str, ...], tuple[str, ...]]  # metrics, and translations of one run


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
    key, runs = _key(test, bootstrap), sum(map(len, test.hypotheses))
    tasks = tuple(tuple((key, names, tuple(run)) for run in system) for system in test.hypotheses)
    return _counted(tasks, process_count(runs, len(test.references), bootstrap.jobs))


@lru_cache(maxsize=1)
def _counted(systems: tuple[tuple[Task, ...], ...], processes: int) -> list[list[RunCounts]]:
    with executor(processes, *JOBS) as pool:
        counts = in_order(pool, _count, [task for runs in systems for task in runs])
        return [[next(counts) for _ in runs] for runs in systems]


def process_count(tasks: int, lines: int, jobs: int) -> int:
    """How many processes: one for few lines, which are done before a second has started."""
    return max(1, min(jobs, tasks)) if tasks * lines >= LINES else 1


def lines_of(row: BucketScores, lengths: Sequence[int]) -> NDArray[np.intp]:
    """Indices of the pairs of a row, in order."""
    if row.name == ALL:
        return np.arange(len(lengths))
    return buckets.indices(Bucket(row.low, row.high), lengths)


def _key(test: TranslatedTest, bootstrap: Bootstrap) -> ScorerKey:
    return tuple(test.references), test.language, test.tokenize, bootstrap.samples, bootstrap.seed


def _count(task: Task) -> RunCounts:
    """Count one run's translations by some metrics, in any process."""
    scorers_key, metrics, hypotheses = task
    by_name = _scorers(*scorers_key)
    return {name: by_name[name].counts(hypotheses).astype(np.float32) for name in metrics}


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
    groups: list[tuple[Bucket | None, NDArray[np.intp]]] = []
    if test.lengths is not None:
        ranges = buckets.from_bounds(bootstrap.bounds)
        groups = [(bucket, buckets.indices(bucket, test.lengths)) for bucket in ranges]
    groups.append((None, np.arange(len(test.references))))
    limits = test.longest_trained or [None] * len(test.hypotheses)
    rows = []
    for bucket, lines in groups:
        beyond = [bucket is not None and bucket.beyond(longest) for longest in limits]
        cells = _cells(bootstrap, used, counts, beyond, lines)
        name, low, high = (bucket.name, *bucket) if bucket else (ALL, 0, None)
        rows.append(BucketScores(name, low, high, len(lines), 0 < len(lines) < FEW, cells))
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
    samples = {
        metric: over_seeds(systems, bootstrap.seed)
        for metric, systems in sampled_runs(bootstrap, used, counts, lines).items()
    }
    ranks = {
        scorer.name: rank_intervals(samples[scorer.name], scorer.higher_is_better)
        for scorer in (used if len(counts) > 1 else ())
    }
    baseline: dict[str, tuple[float, NDArray[np.float64]]] = {}  # by metric, of the first
    cells = []
    for s, (runs, far) in enumerate(zip(counts, beyond, strict=True)):
        scores: dict[str, Score] = {}
        for scorer in used:
            seeds = [scorer.score(_sum(run[scorer.name][lines])) for run in runs]
            mean = fmean(seeds)
            sampled, p = samples[scorer.name][s], None
            if scorer.name not in baseline:
                baseline[scorer.name] = mean, sampled
            elif len(lines) >= TESTED:
                base, base_sampled = baseline[scorer.name]
                p = p_value(base_sampled, sampled, mean - base)
            deviation = stdev(seeds) if len(seeds) > 1 else None
            most = 100.0 if scorer.higher_is_better else None
            ends = interval(np.clip(sampled, 0.0, most))  # a deviation of seeds knows no bounds
            of_rank = list(ranks[scorer.name][s]) if ranks else None
            scores[scorer.name] = Score(mean, deviation, seeds, *ends, p, ranks=of_rank)
        ratio = mean_of_known(length_ratio(run[BLEU][lines].astype(np.float64)) for run in runs)
        cells.append(SystemScores(scores, ratio, far))
    return cells


def sampled_runs(
    bootstrap: Bootstrap,
    used: Sequence[Scorer],
    counts: Sequence[Sequence[RunCounts]],
    lines: NDArray[np.intp],
) -> dict[str, list[NDArray[np.float64]]]:
    """Scores of each run over the same draws of some lines: metric -> system -> [runs, samples]."""
    by_run = _sampled(bootstrap, used, [run for runs in counts for run in runs], lines)
    drawn = [[next(by_run) for _ in runs] for runs in counts]
    return {
        scorer.name: [np.array([run[scorer.name] for run in runs]) for runs in drawn]
        for scorer in used
    }


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _sum(counts: CountTable) -> NDArray[np.float64]:
    return counts.sum(axis=0, dtype=np.float64)


def _sampled(
    bootstrap: Bootstrap, used: Sequence[Scorer], runs: Sequence[RunCounts], lines: NDArray[np.intp]
) -> Iterator[dict[str, NDArray[np.float64]]]:
    """Scores of each run, in order, over the same draws: metric -> [samples].

    As many runs are resampled at once as BLOCK allows, since each call draws anew (the same).
    """
    columns = [runs[0][scorer.name].shape[1] for scorer in used]
    together = max(1, BLOCK // (len(lines) * max(1, sum(columns))))
    for start in range(0, len(runs), together):
        block = runs[start : start + together]
        flat = np.concatenate([run[s.name][lines] for run in block for s in used], axis=1)
        sums = resampled(flat.astype(np.float64), bootstrap.samples, bootstrap.seed)
        parts = iter(np.split(sums, np.cumsum(columns * len(block))[:-1], axis=1))
        for _ in block:
            yield {s.name: np.array([s.score(row) for row in next(parts)]) for s in used}
