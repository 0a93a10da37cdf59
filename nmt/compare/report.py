"""A comparison as plain values: text, TSV, JSON, pictures and the page are all made from these.

Systems are indexed as in `Report.systems`, everywhere. A system is one config, whose runs differ in
their seeds alone, or a file of translations. Numbers that do not exist (an empty bucket, the
deviation of one seed) are None, never NaN.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib import import_module
from statistics import median
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from nmt.errors import Exit, UserError

FORMAT = 3  # of the JSON file; a reader refuses others
FEW = 100  # below so many pairs a bucket is marked
TESTED = 30  # below so many pairs no test is made: a bootstrap of so few says nothing
SIGNIFICANT = 0.05
ALL = "all"  # the name of the row of all pairs
SOURCE, REFERENCE = "source", "reference"  # whose length is the axis
SITES = ("encoder", "decoder", "cross")  # of attention
REACH = 32  # distances beyond count as the last ones
UNATTENDED = 0.2
"""Coverage below which a source piece counts as not attended to.

Coverage is the sum over all pieces of the translation, so this is a fifth of what one piece of it
gives away. Pieces have about 1 on average where both sides are equally long.
"""
MOST_DIFFERENT, AMONG_WORST = "most different", "worst"  # why an example was chosen


@dataclass(frozen=True)
class LearningCurve:
    """How one run learned."""

    steps: list[int]  # updates, where the training perplexity was reported
    train: list[float]  # training perplexity
    dev_steps: list[int]  # updates, at checkpoints
    dev: list[float]  # dev perplexity
    rates: list[float]  # learning rate, at `steps`


@dataclass(frozen=True)
class TrainedRun:
    """One finished training run."""

    run: str  # its directory, as it was named
    seed: int
    step: int  # updates made
    seconds: float | None  # spent in updates
    tokens_per_second: float | None  # of the target, in training, median; None: never reported
    dev_perplexity: float | None  # the best
    curve: LearningCurve


@dataclass(frozen=True)
class ComparedSystem:
    """One config, trained with one or more seeds; of translations in a file the label alone."""

    label: str  # as `relative, max 100`
    longest_trained: int | None = None  # longest source in training, in the unit of the lengths
    parameters: int | None = None  # of the whole model
    encoding_parameters: int | None = None  # of its encodings
    runs: list[TrainedRun] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float | None:
        """Of the target, in training: median over runs; None where none reported it."""
        speeds = [run.tokens_per_second for run in self.runs if run.tokens_per_second is not None]
        return median(speeds) if speeds else None


@dataclass(frozen=True)
class Metric:
    """How a metric was computed."""

    name: str
    title: str
    higher_is_better: bool
    signature: str


@dataclass(frozen=True)
class Score:
    """A system's score on a set of pairs."""

    mean: float  # over seeds
    deviation: float | None  # standard deviation over seeds (n - 1); None for one seed
    seeds: list[float]  # by run
    low: float  # 95% interval of the mean: `scoring`
    high: float
    p: float | None  # paired bootstrap of the means against the first system; None: few pairs
    published: float | None = None  # the same cell in the paper
    ranks: list[int] | None = None  # the best and the worst among the systems, 95%; None: alone

    @property
    def significant(self) -> bool:
        """Whether the paired test tells the system from the first."""
        return self.p is not None and self.p < SIGNIFICANT


@dataclass(frozen=True)
class UnderTranslation:
    """Signs of under-translation in one bucket; means over seeds, each a share from 0 to 1."""

    repeated: float | None  # of the hypotheses' 4-grams, those that stood earlier in the line
    repeated_reference: float | None  # the same of the references
    unattended: float | None  # of source pieces, those that no output piece attended to
    dropped_half: float | None  # of joined pairs, those whose second half was not translated


@dataclass(frozen=True)
class SystemScores:
    """One system in one bucket."""

    scores: dict[str, Score]  # by metric; none in an empty bucket
    ratio: float | None  # tokens of the hypotheses over those of the references, as BLEU counts
    beyond: bool  # all of the bucket are longer than any of that side in the system's training
    signs: UnderTranslation | None = None  # None: not asked for, or the bucket is empty
    perplexity: float | None = None  # of the references, by piece; None: not asked for, or unknown


@dataclass(frozen=True)
class BucketScores:
    """All systems in one bucket of lengths, or on all pairs."""

    name: str  # `26-50`, `over 100`, `all`
    low: int
    high: int | None  # None: no end
    pairs: int
    few: bool  # too few pairs for more than a hint
    cells: list[SystemScores]  # by system


@dataclass(frozen=True)
class Share:
    """A share, mean over seeds, or the difference of two, with the 95% interval of a bootstrap."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PartShares:
    """What a system makes of one part of joined lines; see `undertranslation.part_counts`."""

    arrived: Share | None  # of its 6-grams that no other part has; None: it has none in any line
    omitted: float | None  # share of the lines in which it was left out
    repeated: float | None  # how many of these are too many, over their number in the part


@dataclass(frozen=True)
class PlaceScores:
    """All systems on the part at one place of the lines that are joined of so many."""

    parts: int
    place: int  # from 1
    pairs: int
    few: bool  # too few pairs for more than a hint
    cells: list[PartShares]  # by system

    @property
    def name(self) -> str:
        """The name in tables: `2 of 3`."""
        return f"{self.place} of {self.parts}"


@dataclass(frozen=True)
class LossParts:
    """What a system loses beyond its trained length, and why; see `losses.loss_parts`."""

    pairs: int  # beyond
    within: Share
    beyond: Share
    end: Share
    place: Share
    content: Share

    @property
    def few(self) -> bool:
        """Too few pairs for more than a hint."""
        return self.pairs < FEW


@dataclass(frozen=True)
class ExampleTranslation:
    """The translation of one source by a system's first run."""

    text: str
    score: float  # chrF2 of the sentence, 0 to 100
    coverage: list[float] | None  # by source piece: attention it got over all output pieces


@dataclass(frozen=True)
class ComparedLine:
    """A line of a test set with its translations: what a metric of one's own needs."""

    source: str | None  # None: no source was given
    reference: str
    hypotheses: list[list[str]]  # by system, then by run


@dataclass(frozen=True)
class ExamplePair:
    """A test pair with the translations side by side."""

    line: int  # in the test set, from 1
    why: str  # MOST_DIFFERENT or AMONG_WORST
    source: str
    reference: str
    length: int
    bucket: str
    pieces: list[str] | None  # of the source, as the coverage counts them
    hypotheses: list[ExampleTranslation]  # by system


@dataclass(frozen=True)
class ScoredTest:
    """One test set, scored."""

    name: str  # `newstest_all`
    about: str  # a sentence on what it is
    unit: str | None  # what a length counts; None: no source, hence no buckets
    longest: int | None  # the greatest of the lengths
    metrics: list[Metric]  # the first is the main one
    rows: list[BucketScores]  # the buckets, then all pairs
    examples: list[ExamplePair] = field(default_factory=list)
    lines: list[ComparedLine] = field(default_factory=list)  # all of them
    places: list[PlaceScores] = field(default_factory=list)  # of joined lines
    losses: list[LossParts | None] = field(default_factory=list)  # by system; empty: not wanted
    side: str = SOURCE  # or REFERENCE: whose lengths make the buckets
    longest_trained: list[int | None] = field(default_factory=list)
    """By system, of REFERENCE: the longest target in training. Of SOURCE the systems have it."""

    @property
    def buckets(self) -> list[BucketScores]:
        """The rows without that of all pairs."""
        return [row for row in self.rows if row.name != ALL]

    @property
    def filled(self) -> list[BucketScores]:
        """The rows that hold pairs."""
        return [row for row in self.rows if row.pairs]

    def metric(self, name: str) -> Metric:
        """The metric of this name."""
        return next(metric for metric in self.metrics if metric.name == name)

    def axis_position(self, length: int) -> float | None:
        """Where on an axis of the buckets a length lies, the first bucket being from 0 to 1.

        None if no source of the test is longer.
        """
        if self.longest is None or length >= self.longest:
            return None
        for i, row in enumerate(self.buckets):
            high = self.longest if row.high is None else row.high
            if length <= high:
                return i + max(0.0, (length - row.low + 1) / (high - row.low + 1))
        return None


@dataclass(frozen=True)
class AttentionProfile:
    """How far one head attends, in one bucket of one test: of a system's first run."""

    system: int
    test: str
    bucket: str
    site: str  # `encoder` | `decoder` | `cross`
    layer: int  # from 1
    head: int  # from 1
    distance: float  # mean of |key - query|, weighted by attention, in pieces
    distances: list[int]  # key - query; the first and the last stand for all beyond
    weights: list[float]  # share of attention at each of `distances`; they add up to 1


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, to be laid out as there: buckets across, systems down."""

    name: str  # `Table 2`
    caption: str
    test: str  # name of one of the report's tests
    systems: list[int]  # in the paper's order
    metrics: list[str]  # shown in each cell, in order: BLEU, TER
    published: bool  # whether the scores carry published numbers
    buckets: bool = True  # False: all pairs only (the paper's Table 1)


@dataclass(frozen=True)
class Report:
    """A whole comparison, and what is needed to compute it again."""

    systems: list[ComparedSystem]
    tests: list[ScoredTest]
    samples: int  # of the bootstrap
    seed: int  # of the bootstrap
    title: str = ""
    date: str = ""  # YYYY-MM-DD
    command: str = ""  # what was typed
    notes: list[str] = field(default_factory=list)  # on data, budget, search, and the paper
    tables: list[PaperTable] = field(default_factory=list)
    profiles: list[AttentionProfile] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)  # versions, files, settings

    def to_frame(self) -> Any:
        """The scores as a pandas.DataFrame; UserError (69) where pandas is not installed."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            reason = "report.to_frame: pandas is not installed; pip install pandas"
            raise UserError(reason, Exit.UNAVAILABLE) from None
        rows = list[dict[str, Any]]()
        for test, row in ((t, row) for t in self.tests for row in t.rows):
            for system, cell in zip(self.systems, row.cells, strict=True):
                about = (test.name, row.name, row.pairs, system.label)
                named = dict(zip(("test", "bucket", "pairs", "system"), about, strict=True))
                rows += ({**named, "metric": m, **vars(score)} for m, score in cell.scores.items())
        return pandas.DataFrame(rows)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> "Report":
        """The report of a JSON file; raises ValueError if it has another format."""
        if plain.get("format") != FORMAT:
            raise ValueError(f"format {plain.get('format')}; this version reads {FORMAT}")
        return _restored(cls, {key: value for key, value in plain.items() if key != "format"})

    def test(self, name: str) -> ScoredTest:
        """The test set of this name."""
        return next(test for test in self.tests if test.name == name)

    def trained_limits(self, test: ScoredTest) -> dict[int, list[int]]:
        """The systems by the longest text of the test's side in training, where that is known."""
        longest = [system.longest_trained for system in self.systems]
        limits: dict[int, list[int]] = {}
        for s, length in enumerate(longest if test.side == SOURCE else test.longest_trained):
            if length is not None:
                limits.setdefault(length, []).append(s)
        return limits


def rows_of(report: Report, table: PaperTable) -> list[BucketScores]:
    """The rows that a table of the paper shows: those with pairs, or all pairs alone."""
    rows = report.test(table.test).rows
    return [row for row in rows if row.pairs and (table.buckets or row.name == ALL)]


def trained_run(run: str, seed: int, step: int, metrics: Sequence[dict[str, Any]]) -> TrainedRun:
    """Summarise the training of a run, of so many updates, from the lines of its metrics.jsonl.

    The speed is the median of what was reported; the dev perplexity is the best.
    """
    train = [line for line in metrics if line["kind"] == "train"]
    dev = [line for line in metrics if line["kind"] == "dev"]
    speeds = [line["tokens_per_second"] for line in train]
    return TrainedRun(
        run=run,
        seed=seed,
        step=step,
        seconds=max((line["seconds"] for line in metrics if "seconds" in line), default=None),
        tokens_per_second=median(speeds) if speeds else None,
        dev_perplexity=min((line["perplexity"] for line in dev), default=None),
        curve=LearningCurve(
            steps=[line["step"] for line in train],
            train=[line["perplexity"] for line in train],
            dev_steps=[line["step"] for line in dev],
            dev=[line["perplexity"] for line in dev],
            rates=[line["lr"] for line in train],
        ),
    )


def _restored(kind: Any, plain: Any) -> Any:
    """A value of the annotated type from what `asdict` and JSON made of it."""
    if get_origin(kind) is UnionType and plain is not None:
        kind = next(option for option in get_args(kind) if option is not type(None))
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(plain, dict):
        types = get_type_hints(kind)
        if unknown := sorted(plain.keys() - types.keys()):
            raise ValueError(f"{kind.__name__}: no field {unknown[0]!r}")
        return kind(**{name: _restored(types[name], value) for name, value in plain.items()})
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        if not isinstance(plain, list):
            raise ValueError(f"expected a list, not {plain!r:.40}")
        return [_restored(item, value) for value in plain]
    if get_origin(kind) is dict:
        _, item = get_args(kind)
        return {key: _restored(item, value) for key, value in plain.items()}
    return plain
