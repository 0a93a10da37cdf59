"""Scores of systems that were trained several times: means over seeds, intervals, paired tests.

The interval and the test are about the pairs of the test set: each bootstrap draw of lines scores
the runs of all seeds, and the mean over them is one sample. Seeds are held fixed; how far they lie
apart is the deviation's to say. With one seed each this is `nmt.compare.report.compare`.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare import buckets
from nmt.compare.buckets import Bucket
from nmt.compare.report import ALL, FEW, TESTED
from nmt.compare.scores import Scorer, length_ratio, scorers
from nmt.compare.significance import interval, p_value, resampled
from nmt.compare.study import Cell, Row, Score
from nmt.data.parallel import in_order

BLOCK = 2**24  # numbers that are resampled at once (128 MiB); more columns mean more blocks
LINES = 2_000  # of all runs together, from which counting in other processes pays

Table = NDArray[np.float32]  # [lines, columns] counts: whole numbers far below 2**24, so exact


class Runs(NamedTuple):
    """The counts of one system."""

    counts: list[list[Table]]  # run, scorer -> [lines, columns]; no run: it was not tested here
    longest: int | None  # longest source in its training, in the unit of the lengths


class Task(NamedTuple):
    """One run's translations, to be counted in any process."""

    references: tuple[str, ...]
    language: str
    metrics: tuple[str, ...]
    hypotheses: list[str]


def counted(
    translations: Sequence[Sequence[list[str]]],
    references: Sequence[str],
    language: str,
    metrics: Sequence[str],
    jobs: int,
) -> list[list[list[Table]]]:
    """Count all translations (system, run -> lines) by each metric: system, run, metric -> table.

    TER takes 1 to 10 ms for a line, so that this is where the time goes: many lines are
    counted in `jobs` processes.
    """
    tasks = [
        Task(tuple(references), language, tuple(metrics), hypotheses)
        for runs in translations
        for hypotheses in runs
    ]
    found = in_order(_count, tasks, workers(len(tasks), len(references), jobs))
    return [[next(found) for _ in runs] for runs in translations]


def workers(tasks: int, lines: int, jobs: int) -> int:
    """How many processes: one for few lines, which are done before a second has started."""
    return max(1, min(jobs, tasks)) if tasks * lines >= LINES else 1


def _count(task: Task) -> list[Table]:
    by_name = _scorers(task.references, task.language)
    return [by_name[name].counts(task.hypotheses).astype(np.float32) for name in task.metrics]


@lru_cache(maxsize=1)  # the runs of one test come one after another
def _scorers(references: tuple[str, ...], language: str) -> dict[str, Scorer]:
    # samples and seed only enter the signatures, which nobody sees here
    return {scorer.name: scorer for scorer in scorers(references, language, None, 0, 0)}


def rows(
    systems: Sequence[Runs],
    used: Sequence[Scorer],
    bleu: int,
    lengths: Sequence[int] | None,
    bounds: Sequence[int],
    samples: int,
    seed: int,
) -> list[Row]:
    """Score all systems in each bucket of lengths, and on all pairs.

    `used` are the scorers of the counts, `bleu` the index of the one whose tokens make the length
    ratio. The first system that was tested is the baseline of the paired tests.
    """
    pairs = len(next(own.counts[0][0] for own in systems if own.counts))
    groups: list[tuple[Bucket | None, NDArray[np.intp]]] = []
    if lengths is not None:
        groups = [(b, buckets.members(b, lengths)) for b in buckets.make(bounds)]
    groups.append((None, np.arange(pairs)))
    made = []
    for bucket, lines in groups:
        cells = _cells(systems, used, bleu, bucket, lines, samples, seed)
        name, low, high = (bucket.name, *bucket) if bucket else (ALL, 0, None)
        made.append(Row(name, low, high, len(lines), 0 < len(lines) < FEW, cells))
    return made


def _cells(
    systems: Sequence[Runs],
    used: Sequence[Scorer],
    bleu: int,
    bucket: Bucket | None,
    lines: NDArray[np.intp],
    samples: int,
    seed: int,
) -> list[Cell]:
    """All systems on the pairs of one bucket; an empty bucket is never scored."""
    unseen = [
        bucket is not None and s.longest is not None and bucket.low > s.longest for s in systems
    ]
    if not len(lines):
        return [Cell({}, None, longer) for longer in unseen]
    drawn = _drawn(systems, used, lines, samples, seed)
    base: list[tuple[float, NDArray[np.float64]]] = []  # by metric, once the first was scored
    cells = []
    for system, longer in zip(systems, unseen, strict=True):
        if not system.counts:
            cells.append(Cell({}, None, longer))
            continue
        scores: dict[str, Score] = {}
        own = [next(drawn) for _ in system.counts]  # run, metric -> [samples]
        first = not base
        for m, scorer in enumerate(used):
            seeds = [scorer.score(_sum(run[m][lines])) for run in system.counts]
            mean, sampled = fmean(seeds), np.mean([run[m] for run in own], axis=0)
            p = None
            if first:
                base.append((mean, sampled))
            elif len(lines) >= TESTED:
                p = p_value(base[m][1], sampled, mean - base[m][0])
            deviation = stdev(seeds) if len(seeds) > 1 else None
            scores[scorer.name] = Score(mean, deviation, seeds, *interval(sampled), p)
        ratios = [length_ratio(run[bleu][lines].astype(np.float64)) for run in system.counts]
        known = [ratio for ratio in ratios if ratio is not None]
        cells.append(Cell(scores, fmean(known) if known else None, longer))
    return cells


def _sum(counts: Table) -> NDArray[np.float64]:
    return counts.sum(axis=0, dtype=np.float64)


def _drawn(
    systems: Sequence[Runs],
    used: Sequence[Scorer],
    lines: NDArray[np.intp],
    samples: int,
    seed: int,
) -> Iterator[list[NDArray[np.float64]]]:
    """Scores of each run, in order, over the same draws: metric -> [samples].

    As many runs are resampled at once as BLOCK allows, since each call draws anew (the same).
    """
    runs = [run for system in systems for run in system.counts]
    columns = [part.shape[1] for part in runs[0]]
    together = max(1, BLOCK // (len(lines) * sum(columns)))
    for start in range(0, len(runs), together):
        block = runs[start : start + together]
        flat = np.concatenate([part[lines] for run in block for part in run], axis=1)
        sums = resampled(flat.astype(np.float64), samples, seed)
        ends = np.cumsum(columns * len(block))[:-1]
        parts = iter(np.split(sums, ends, axis=1))
        for _ in block:
            yield [np.array([scorer.score(s) for s in next(parts)]) for scorer in used]
