"""A comparison as plain values: systems, test sets, and one row for each figure.

Text, TSV, JSON, plots and the page are all made from these. A figure that does not exist, as of an
empty bucket, has no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nmt.evaluation.metrics import Metric

FEW = 100  # below so many pairs a group is marked
TESTED = 30  # below so many pairs no test is made: a bootstrap of fewer means nothing
SIGNIFICANT = 0.05
ALL, BEYOND, WITHIN = "all", "beyond training", "within training"  # names of groups
SOURCE, REFERENCE = "source", "reference"  # whose length is the axis
REFERENCES = "(references)"  # instead of a system: a figure of the references themselves


@dataclass(frozen=True)
class Group:
    """Some pairs of a test set: a bucket of lengths, those beyond training, joined ones, or all."""

    name: str  # `26-50`, `over 100`, `beyond training`, `2 of 3`, `all`
    pairs: int
    low: int | None = None  # shortest length; None: not a bucket
    high: int | None = None  # longest length; None: no end, or not a bucket

    @property
    def few(self) -> bool:
        return self.pairs < FEW

    def is_unseen(self, trained: int | None) -> bool:
        """Whether all its lines are longer than any in a system's training."""
        return trained is not None and (self.name == BEYOND or (self.low or 0) > trained)


@dataclass(frozen=True)
class Figure:
    """One metric of one system on one group: the mean over its seeds, interval and p-value."""

    test: str
    group: str
    pairs: int
    system: str
    metric: str
    mean: float
    seeds: list[float] = field(default_factory=list)  # by run
    deviation: float | None = None  # standard deviation over seeds (n - 1); None: one seed
    low: float | None = None  # 95 % interval of the mean, over lines and seeds
    high: float | None = None
    p: float | None = None  # paired bootstrap against the first system; None: few pairs
    unseen: bool = False  # all of the group are longer than any in the system's training

    @property
    def significant(self) -> bool:
        """Whether the system differs from the first; never in a group too small to rely on."""
        return self.p is not None and self.p < SIGNIFICANT and self.pairs >= FEW


@dataclass(frozen=True)
class ComparedSystem:
    """One config, trained with one or more seeds; a file of translations has only a label."""

    label: str  # as `relative, max 100`
    longest_trained: int | None = None  # longest source in training, in pieces of the system
    parameters: int | None = None  # of the whole model
    encoding_parameters: int | None = None  # of its encodings
    runs: list[dict[str, Any]] = field(default_factory=list)  # run, seed, step, dev_perplexity


@dataclass
class TranslatedTest:
    """One test set with the translations of all systems; line N of everything belongs together."""

    references: list[str]
    hypotheses: list[list[list[str]]]  # system, run -> lines
    name: str = "test"
    about: str = ""  # a sentence on what it is
    language: str = "en"  # of the references
    sources: list[str] | None = None  # None: there are references alone
    lengths: list[int] | None = None  # of the sources, or references; None: no buckets
    unit: str | None = None  # what a length counts
    side: str = SOURCE  # whose lengths they are, or REFERENCE
    trained: Sequence[int | None] = ()  # longest in training, by system, in this unit
    parts: Sequence[Sequence[str]] | None = None  # sentences of each joined reference
    columns: Mapping[int, Mapping[str, Path]] = field(default_factory=dict)  # by system
    metrics: list[Metric] = field(default_factory=list)  # the first is the main one
    # what scoring adds: buckets, beyond training, all; then parts of joined lines
    groups: list[Group] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)  # see `scoring.choose_examples`

    @property
    def longest(self) -> int | None:
        return max(self.lengths or (), default=None)

    @property
    def buckets(self) -> list[Group]:
        """The groups on the axis of lengths."""
        return [group for group in self.groups if group.low is not None]

    def group(self, name: str) -> Group | None:
        return next((group for group in self.groups if group.name == name), None)

    def to_json(self) -> dict[str, Any]:
        names = "name", "title", "form", "higher_is_better", "signature"
        keys = "name", "about", "unit", "side", "longest", "examples"
        return {key: getattr(self, key) for key in keys} | {
            "trained": list(self.trained),
            "metrics": [{name: getattr(m, name) for name in names} for m in self.metrics],
            "groups": list(map(vars, self.groups)),
            "lines": [
                {
                    "source": None if self.sources is None else self.sources[i],
                    "reference": reference,
                    "hypotheses": [[run[i] for run in runs] for runs in self.hypotheses],
                }
                for i, reference in enumerate(self.references)
            ],
        }


@dataclass(frozen=True)
class Report:
    """A whole comparison, and what is needed to compute it again."""

    systems: list[ComparedSystem]
    tests: list[TranslatedTest]
    figures: list[Figure]
    samples: int  # of the bootstrap
    seed: int  # of the bootstrap
    title: str = ""
    date: str = ""  # YYYY-MM-DD
    command: str = ""  # what was typed
    notes: list[str] = field(default_factory=list)  # on data, budget and search
    about: dict[str, Any] = field(default_factory=dict)  # versions, files, settings

    @property
    def labels(self) -> list[str]:
        return [system.label for system in self.systems]

    def figure(
        self, metric: str, system: str, group: str = ALL, test: str | None = None
    ) -> Figure | None:
        """One figure; `test` None is the first test. None where there is no such number."""
        name = self.tests[0].name if test is None else test
        return self._index.get((name, group, system, metric))

    @cached_property
    def _index(self) -> Mapping[tuple[str, str, str, str], Figure]:
        return {(f.test, f.group, f.system, f.metric): f for f in self.figures}

    def row(self, test: TranslatedTest, group: Group, metric: str) -> list[Figure | None]:
        return [self.figure(metric, label, group.name, test.name) for label in self.labels]

    def table(
        self, test: TranslatedTest, metric: str
    ) -> tuple[list[Group], dict[str, list[Figure | None]]]:
        """The groups in which any system has a figure of this metric; the rows that have any.

        Buckets come last: a narrow screen shows no more than the first groups.
        """
        groups = sorted(test.groups, key=lambda group: group.low is not None)
        groups = [group for group in groups if any(self.row(test, group, metric))]
        rows = {
            label: [self.figure(metric, label, group.name, test.name) for group in groups]
            for label in (*self.labels, REFERENCES)
        }
        return groups, {label: row for label, row in rows.items() if any(row)}

    def to_json(self) -> dict[str, Any]:
        plain = {key: value for key, value in vars(self).items() if key != "_index"}
        return plain | {
            "systems": list(map(vars, self.systems)),
            "tests": [test.to_json() for test in self.tests],
            "figures": list(map(vars, self.figures)),
        }
