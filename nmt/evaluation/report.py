"""A comparison as plain values: systems, test sets, and one row for each figure.

Text, TSV, JSON, plots and the page are all made from these. A system is one config, whose runs
differ in their seeds alone, or a file of translations. A figure that does not exist (of an empty
bucket, of a sign that was not asked for) has no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from typing import Any

FEW = 100  # below so many pairs a group is marked
TESTED = 30  # below so many pairs no test is made: a bootstrap of so few says nothing
SIGNIFICANT = 0.05
ALL, BEYOND, WITHIN = "all", "beyond training", "within training"  # names of groups
SOURCE, REFERENCE = "source", "reference"  # whose length is the axis
REFERENCES = "(references)"  # stands for a system where a figure is of the references themselves


@dataclass(frozen=True)
class Metric:
    """What a figure is of, and how it was computed."""

    name: str
    title: str
    form: str = "score"  # or "mean", "ratio", "share" (0 to 1, in percent), "points" (of shares)
    higher_is_better: bool | None = None  # None: neither
    signature: str = ""

    @property
    def limits(self) -> tuple[float, float]:
        """Between which values it lies; a deviation of seeds knows no bounds."""
        most = {"score": 100.0 if self.higher_is_better else inf, "share": 1.0, "points": 1.0}
        return {"mean": -inf, "points": -1.0}.get(self.form, 0.0), most.get(self.form, inf)

    @property
    def is_main(self) -> bool:
        """Whether tables show intervals and tests: of the others they are in JSON and TSV."""
        return self.form in ("score", "mean")


@dataclass(frozen=True)
class Group:
    """Some pairs of a test set: a bucket of lengths, those beyond training, one place, or all."""

    name: str  # `26-50`, `over 100`, `beyond training`, `2 of 3`, `all`
    pairs: int
    low: int | None = None  # shortest length; None: not a bucket
    high: int | None = None  # longest length; None: no end, or not a bucket

    @property
    def few(self) -> bool:
        """Too few pairs for more than a hint."""
        return self.pairs < FEW


@dataclass(frozen=True)
class Figure:
    """One number of one system on one group: the mean over its seeds, and how sure it is."""

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
        """Whether the paired test tells the system from the first."""
        return self.p is not None and self.p < SIGNIFICANT


@dataclass(frozen=True)
class TrainedRun:
    """One training run, as its checkpoint says."""

    run: str  # its directory, as it was named
    seed: int
    step: int  # updates made
    dev_perplexity: float | None  # of that checkpoint


@dataclass(frozen=True)
class ComparedSystem:
    """One config, trained with one or more seeds; of translations in a file the label alone."""

    label: str  # as `relative, max 100`
    longest_trained: int | None = None  # longest source in training, in its own pieces
    parameters: int | None = None  # of the whole model
    encoding_parameters: int | None = None  # of its encodings
    runs: list[TrainedRun] = field(default_factory=list)


@dataclass(frozen=True)
class Example:
    """A test pair with the translations side by side."""

    line: int  # in the test set, from 1
    why: str  # "most different" or "worst"
    length: int
    source: str
    reference: str
    translations: list[str]  # by system, of its first run
    scores: list[float]  # chrF2 of the sentence, by system


@dataclass(frozen=True)
class ComparedLine:
    """A line of a test set with its translations: what a metric of one's own needs."""

    source: str | None  # None: no source was given
    reference: str
    hypotheses: list[list[str]]  # by system, then by run


@dataclass(frozen=True)
class ScoredTest:
    """One test set: what was scored, and by which lengths."""

    name: str
    about: str  # a sentence on what it is
    metrics: list[Metric]  # the first is the main one
    groups: list[Group]  # those with pairs: buckets, beyond training, all; then places
    unit: str | None = None  # what a length counts; None: no source, hence no buckets
    side: str = SOURCE  # or REFERENCE: whose lengths they are
    longest: int | None = None  # the greatest of the lengths
    trained: list[int | None] = field(default_factory=list)  # longest in training, by system
    examples: list[Example] = field(default_factory=list)
    lines: list[ComparedLine] = field(default_factory=list)  # all of them

    @property
    def buckets(self) -> list[Group]:
        """The groups on the axis of lengths."""
        return [group for group in self.groups if group.low is not None]

    def group(self, name: str) -> Group | None:
        """The group of this name."""
        return next((group for group in self.groups if group.name == name), None)

    def trained_lengths(self) -> dict[int, list[int]]:
        """The systems by the longest text in their training, where it is known, shortest first."""
        limits: dict[int, list[int]] = {}
        for system, length in enumerate(self.trained):
            if length is not None:
                limits.setdefault(length, []).append(system)
        return dict(sorted(limits.items()))

    def axis_position(self, length: int) -> float | None:
        """Where on an axis of the buckets a length lies, the first bucket being from 0 to 1.

        None if nothing of the test is longer.
        """
        if self.longest is None or length >= self.longest:
            return None
        for i, bucket in enumerate(self.buckets):
            low, high = bucket.low or 0, self.longest if bucket.high is None else bucket.high
            if length <= high:
                return i + max(0.0, (length - low + 1) / (high - low + 1))
        return None


@dataclass(frozen=True)
class Report:
    """A whole comparison, and what is needed to compute it again."""

    systems: list[ComparedSystem]
    tests: list[ScoredTest]
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
        """The names of the systems, the baseline first."""
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

    def row(self, test: ScoredTest, group: Group, metric: str) -> list[Figure | None]:
        """A figure of each system, in their order."""
        return [self.figure(metric, label, group.name, test.name) for label in self.labels]

    def across(
        self, test: ScoredTest, metric: str, system: str, groups: Sequence[Group]
    ) -> list[Figure | None]:
        """A figure of one system in several groups."""
        return [self.figure(metric, system, group.name, test.name) for group in groups]

    def known(self, test: ScoredTest, metric: str, groups: Sequence[Group]) -> list[Group]:
        """Those of some groups in which any system has a figure of this metric."""
        return [group for group in groups if any(self.row(test, group, metric))]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)
