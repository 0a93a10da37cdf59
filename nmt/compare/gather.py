"""From lines of text and of metrics.jsonl to the parts of a study; knows no model."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare import buckets, diagnosis, published, seeds
from nmt.compare.report import ALL, Metric
from nmt.compare.scores import USUAL, Scorer, chosen, scorers
from nmt.compare.study import (
    Cell,
    Curve,
    Diagnosis,
    Example,
    Hypothesis,
    PaperTable,
    Row,
    Test,
    TrainedRun,
)
from nmt.data.parallel import in_order

SENTENCE = "chrF2"  # scores single sentences: BLEU and TER say little of so few words
DIFFERENT, WORST = 20, 10  # examples shown
SAMPLE = 16  # sentences of a bucket whose attention is watched
MOST_DIFFERENT, AMONG_WORST = "most different", "worst"
Parts = Sequence[tuple[list[str], list[str]]]  # of each line: its sentences, source and reference


class Asked(NamedTuple):
    """One test set with everybody's translations."""

    name: str
    about: str
    sources: list[str]
    references: list[str]
    parts: Parts | None  # None: its lines were not joined
    language: str  # of the references
    lengths: list[int]  # of the sources
    unit: str  # what a length counts
    longest: list[int | None]  # by system: longest source in training
    hypotheses: list[list[list[str]]]  # system, run -> lines; no run: it has not translated this
    metrics: list[str]  # the first is the main one; the usual ones are added


class Bootstrap(NamedTuple):
    """How sure a score is, is found out by drawing lines."""

    bounds: list[int]  # of the buckets
    samples: int
    seed: int
    jobs: int  # processes that count


def test(asked: Asked, how: Bootstrap) -> Test:
    """Score a test set by bucket, look for signs of under-translation, choose examples.

    Examples need the translations of all systems; without some there are none. Raises UserError
    for a metric that the language has not.
    """
    every = scorers(asked.references, asked.language, None, how.samples, how.seed)
    usual = [name for name in USUAL if any(name == scorer.name for scorer in every)]
    used = chosen(every, list(dict.fromkeys([*asked.metrics, *usual])))
    names = [scorer.name for scorer in used]
    counts = seeds.counted(
        asked.hypotheses, asked.references, asked.language, names, how.jobs
    )  # system, run, metric -> [lines, columns]
    systems = [seeds.Runs(*own) for own in zip(counts, asked.longest, strict=True)]
    bleu = names.index(every[0].name)
    lengths, bounds = asked.lengths, how.bounds
    rows = seeds.rows(systems, used, bleu, lengths, bounds, how.samples, how.seed)
    halves = _halves(asked, how.jobs)
    rows = [_diagnosed(asked, row, halves) for row in rows]
    sentence = names.index(SENTENCE)
    first = [runs[0][sentence] for runs in counts if runs]
    examples = _examples(asked, rows, used[sentence], first) if all(counts) else []
    return Test(
        name=asked.name,
        about=asked.about,
        unit=asked.unit,
        longest=max(lengths, default=None),
        metrics=[Metric(s.name, s.title, s.higher_is_better, s.signature) for s in used],
        rows=rows,
        examples=examples,
    )


def members(row: Row, lengths: Sequence[int]) -> NDArray[np.intp]:
    """Indices of the pairs of a row, in order."""
    if row.name == ALL:
        return np.arange(len(lengths))
    return buckets.members(buckets.Bucket(row.low, row.high), lengths)


def sampled(row: Row, lengths: Sequence[int], sources: Sequence[str], seed: int) -> list[int]:
    """Up to SAMPLE lines of a bucket, drawn by a fixed seed, in order; empty ones are left out."""
    inside = [int(i) for i in members(row, lengths) if sources[i].strip()]
    return sorted(random.Random(seed).sample(inside, min(SAMPLE, len(inside))))


def _halves(asked: Asked, jobs: int) -> list[list[list[float | None]]]:
    """Of each joined line (system, run -> lines): 1 if its second half was dropped, else 0.

    None where that cannot be told, everywhere where nothing was joined.
    """
    if asked.parts is None:
        unknown: list[float | None] = [None] * len(asked.sources)
        return [[unknown for _ in runs] for runs in asked.hypotheses]
    tasks = [(run, asked.parts) for runs in asked.hypotheses for run in runs]
    found = in_order(_dropped, tasks, seeds.workers(len(tasks), len(asked.sources), jobs))
    return [[next(found) for _ in runs] for runs in asked.hypotheses]


def _dropped(task: tuple[list[str], Parts]) -> list[float | None]:
    return [diagnosis.dropped_half([h], [p]) for h, p in zip(*task, strict=True)]


def _diagnosed(asked: Asked, row: Row, halves: list[list[list[float | None]]]) -> Row:
    """The row with what can be told from the text alone."""
    lines = members(row, asked.lengths)
    if not len(lines):
        return row
    references = diagnosis.repeated([asked.references[i] for i in lines])
    cells = []
    for cell, runs, dropped in zip(row.cells, asked.hypotheses, halves, strict=True):
        found = Diagnosis(
            repeated=_mean(diagnosis.repeated([run[i] for i in lines]) for run in runs),
            repeated_reference=references,
            unattended=None,
            dropped_half=_mean(_mean(run[i] for i in lines) for run in dropped),
        )
        cells.append(replace(cell, diagnosis=found) if runs else cell)
    return replace(row, cells=cells)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def with_unattended(test: Test, system: int, shares: dict[str, float | None]) -> Test:
    """The test with the share of source never attended of one system, by bucket."""

    def told(cell: Cell, bucket: str) -> Cell:
        if cell.diagnosis is None or bucket not in shares:
            return cell
        return replace(cell, diagnosis=replace(cell.diagnosis, unattended=shares[bucket]))

    rows = [
        replace(row, cells=_changed(row.cells, system, told(row.cells[system], row.name)))
        for row in test.rows
    ]
    return replace(test, rows=rows)


def with_coverage(
    test: Test, system: int, pieces: Sequence[list[str]], coverage: Sequence[list[float]]
) -> Test:
    """The test with the coverage of one system's hypotheses, in the order of the examples.

    All systems share the source pieces of an example: those of the first that is told. A system
    that cuts a source otherwise has no coverage there.
    """
    examples = []
    for example, own, values in zip(test.examples, pieces, coverage, strict=True):
        if example.pieces is not None and example.pieces != own:
            examples.append(example)
            continue
        hypothesis = replace(example.hypotheses[system], coverage=values)
        all_of = _changed(example.hypotheses, system, hypothesis)
        examples.append(replace(example, pieces=own, hypotheses=all_of))
    return replace(test, examples=examples)


def _changed(values: Sequence[Any], place: int, value: Any) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]


def with_published(test: Test, table: PaperTable, keys: Sequence[str | None]) -> Test:
    """The test with the paper's numbers beside the scores of a table's systems.

    `keys`: by system, its name in the paper. Where the buckets are not the paper's there is
    nothing to compare, and the test stays as it is.
    """
    known = published.table_of(table.name, test.name)
    if known is None or not published.fitting(known, [row.name for row in test.rows]):
        return test

    def told(cell: Cell, bucket: str, key: str) -> Cell:
        scores = {}
        for name, score in cell.scores.items():
            value = published.cell(known, key, bucket, name)
            scores[name] = score if value is None else replace(score, published=value)
        return replace(cell, scores=scores)

    rows = []
    for row in test.rows:
        cells = list(row.cells)
        for s in table.systems:
            if key := keys[s]:
                cells[s] = told(cells[s], row.name, key)
        rows.append(replace(row, cells=cells))
    return replace(test, rows=rows)


def _examples(
    asked: Asked, rows: Sequence[Row], scorer: Scorer, first: Sequence[seeds.Table]
) -> list[Example]:
    """The pairs whose translations differ most, then those that all systems translate badly."""
    scores = np.array(
        [[scorer.score(line) for line in counts.astype(np.float64)] for counts in first]
    )  # [system, line], of the first runs
    usable = {
        i
        for i, pair in enumerate(zip(asked.sources, asked.references, strict=True))
        if all(side.strip() for side in pair)
    }
    groups = {
        row.name: [int(i) for i in members(row, asked.lengths) if i in usable]
        for row in rows
        if row.name != ALL
    }
    spread, mean = np.ptp(scores, axis=0), scores.mean(axis=0)
    differing = {name: [i for i in lines if spread[i] > 0] for name, lines in groups.items()}
    different = spread_over(differing, (-spread).tolist(), DIFFERENT)
    left = {name: [i for i in lines if i not in different] for name, lines in groups.items()}
    worst = spread_over(left, mean.tolist(), WORST)
    bucket_of = {i: name for name, lines in groups.items() for i in lines}
    return [
        Example(
            line=i + 1,
            why=why,
            source=asked.sources[i],
            reference=asked.references[i],
            length=asked.lengths[i],
            bucket=bucket_of[i],
            pieces=None,
            hypotheses=[
                Hypothesis(runs[0][i], float(scores[s, i]), None)
                for s, runs in enumerate(asked.hypotheses)
            ],
        )
        for why, lines in ((MOST_DIFFERENT, different), (AMONG_WORST, worst))
        for i in lines
    ]


def spread_over(groups: dict[str, list[int]], keys: Sequence[float], most: int) -> list[int]:
    """Up to `most` places of smallest key, by turns from each group; sorted by key.

    Without turns, a long test set would show its longest (or shortest) sentences alone.
    """
    waiting = [sorted(lines, key=lambda i: (keys[i], i)) for lines in groups.values()]
    found: list[int] = []
    while any(waiting) and len(found) < most:
        for lines in waiting:
            if lines and len(found) < most:
                found.append(lines.pop(0))
    return sorted(found, key=lambda i: (keys[i], i))


def trained_run(run: str, seed: int, lines: Sequence[dict[str, Any]]) -> TrainedRun:
    """What the lines of a run's metrics.jsonl tell of its training.

    The speed is the median of what was reported; the dev perplexity is the best.
    """
    train = [line for line in lines if line["kind"] == "train"]
    dev = [line for line in lines if line["kind"] == "dev"]
    speeds = [line["tokens_per_second"] for line in train]
    return TrainedRun(
        run=run,
        seed=seed,
        step=max((line["step"] for line in lines), default=0),
        seconds=max((line["seconds"] for line in lines if "seconds" in line), default=None),
        tokens_per_second=median(speeds) if speeds else None,
        dev_perplexity=min((line["perplexity"] for line in dev), default=None),
        curve=Curve(
            steps=[line["step"] for line in train],
            train=[line["perplexity"] for line in train],
            dev_steps=[line["step"] for line in dev],
            dev=[line["perplexity"] for line in dev],
            rates=[line["lr"] for line in train],
        ),
    )
