"""The whole comparison as plain values: what the table, the plot and the JSON file all show."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare import buckets
from nmt.compare.buckets import Bucket
from nmt.compare.scores import Counts, Scorer, length_ratio
from nmt.compare.significance import interval, p_value, resampled

FORMAT = 1  # of the JSON file; a reader refuses others
FEW = 100  # below so many pairs a bucket is marked
TESTED = 30  # below so many pairs no test is made: a bootstrap of so few says nothing
SIGNIFICANT = 0.05
ALL = "all"


class System(NamedTuple):
    """The translations of one system, line by line as the references."""

    label: str
    hypotheses: list[str]
    longest: int | None = None  # longest source in its training, in the unit of the lengths


@dataclass(frozen=True)
class Estimate:
    """A score, its 95% interval, and the p-value against the first system."""

    score: float
    low: float
    high: float
    p: float | None


@dataclass(frozen=True)
class Cell:
    """One system in one bucket."""

    ratio: float | None  # tokens of the hypotheses over those of the references
    unseen: bool  # every source of the bucket is longer than any in the system's training
    scores: dict[str, Estimate]  # by metric; empty in an empty bucket


@dataclass(frozen=True)
class Row:
    """One bucket, or all pairs; `cells` in the order of the systems."""

    name: str
    low: int
    high: int | None
    pairs: int
    few: bool
    cells: list[Cell]


@dataclass(frozen=True)
class Metric:
    """How a metric was computed."""

    name: str
    title: str
    higher_is_better: bool
    signature: str


@dataclass(frozen=True)
class Report:
    """Scores of all systems by bucket, and all that is needed to compute them again."""

    systems: list[str]
    longest_trained: list[int | None]  # by system
    metrics: list[Metric]
    unit: str | None  # what a length counts; None: no source, hence no buckets
    bounds: list[int]
    longest_tested: int | None
    samples: int
    seed: int
    rows: list[Row]  # the buckets, then all pairs
    about: dict[str, Any] = field(default_factory=dict)  # versions, files, settings

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Report":
        """The report of a JSON file; raises ValueError if it has another format."""
        if plain.get("format") != FORMAT:
            raise ValueError(f"format {plain.get('format')}; this version reads {FORMAT}")
        values = {key: value for key, value in plain.items() if key != "format"}
        values["metrics"] = [Metric(**metric) for metric in values["metrics"]]
        values["rows"] = [_row(row) for row in values["rows"]]
        return cls(**values)


def compare(
    systems: Sequence[System],
    scorers: Sequence[Scorer],
    lengths: Sequence[int] | None,
    *,
    unit: str | None,
    bounds: Sequence[int],
    samples: int,
    seed: int,
    about: dict[str, Any],
    bleu: Scorer | None = None,
) -> Report:
    """Score all systems on all pairs and, where source lengths are known, in each bucket.

    The first system is the baseline, and the first scorer the main metric. The tokens of `bleu`
    make the length ratio; None: the first scorer is BLEU. A bucket's score is the corpus score of
    its pairs, no mean over sentences.
    """
    counts = [[scorer.counts(system.hypotheses) for scorer in scorers] for system in systems]
    tokens = [own[0] for own in counts]
    if bleu is not None and bleu is not scorers[0]:
        tokens = [bleu.counts(system.hypotheses) for system in systems]
    pairs = len(systems[0].hypotheses)
    groups: list[tuple[Bucket | None, NDArray[np.intp]]] = []
    if lengths is not None:
        groups = [(b, buckets.members(b, lengths)) for b in buckets.make(bounds)]
    groups.append((None, np.arange(pairs)))
    rows = []
    for bucket, lines in groups:
        subset = [[part[lines] for part in own] for own in counts]
        ratios = [length_ratio(own[lines]) for own in tokens]
        cells = _cells(systems, scorers, subset, ratios, bucket, samples, seed)
        name, low, high = (bucket.name, *bucket) if bucket else (ALL, 0, None)
        rows.append(Row(name, low, high, len(lines), 0 < len(lines) < FEW, cells))
    return Report(
        systems=[system.label for system in systems],
        longest_trained=[system.longest for system in systems],
        metrics=[Metric(s.name, s.title, s.higher_is_better, s.signature) for s in scorers],
        unit=unit,
        bounds=list(bounds) if lengths is not None else [],
        longest_tested=max(lengths) if lengths is not None else None,
        samples=samples,
        seed=seed,
        rows=rows,
        about=about,
    )


def _cells(
    systems: Sequence[System],
    scorers: Sequence[Scorer],
    counts: list[list[Counts]],  # system, scorer -> [pairs, columns]
    ratios: list[float | None],  # by system
    bucket: Bucket | None,
    samples: int,
    seed: int,
) -> list[Cell]:
    """All systems on the pairs of one bucket; an empty bucket is never scored."""
    unseen = [
        bucket is not None and s.longest is not None and bucket.low > s.longest for s in systems
    ]
    if len(counts[0][0]) == 0:
        return [Cell(None, longer, {}) for longer in unseen]
    found: list[dict[str, Estimate]] = [{} for _ in systems]
    drawn = _drawn(counts, samples, seed)
    for m, scorer in enumerate(scorers):
        base_score = scorer.score(counts[0][m].sum(axis=0))
        base = np.empty(0)
        for s in range(len(systems)):
            score = scorer.score(counts[s][m].sum(axis=0))
            scores = np.array([scorer.score(sums) for sums in drawn[s][m]])  # [samples]
            base = scores if s == 0 else base
            p = None
            if s > 0 and len(counts[s][m]) >= TESTED:
                p = p_value(base, scores, score - base_score)
            found[s][scorer.name] = Estimate(score, *interval(scores), p)
    return [Cell(*parts) for parts in zip(ratios, unseen, found, strict=True)]


def _drawn(counts: list[list[Counts]], samples: int, seed: int) -> list[list[Counts]]:
    """Sums over bootstrap draws, the same draws for all: system, scorer -> [samples, columns]."""
    flat = [part for own in counts for part in own]
    sums = resampled(np.concatenate(flat, axis=1), samples, seed)
    ends = np.cumsum([part.shape[1] for part in flat])[:-1]
    parts = iter(np.split(sums, ends, axis=1))
    return [[next(parts) for _ in own] for own in counts]


def _row(plain: dict[str, Any]) -> Row:
    cells = [
        Cell(c["ratio"], c["unseen"], {k: Estimate(**e) for k, e in c["scores"].items()})
        for c in plain["cells"]
    ]
    return Row(**{**plain, "cells": cells})
