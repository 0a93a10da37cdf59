"""All that a report shows, as plain values: text, TSV, JSON and the page are made from these.

Systems are indexed as in `Study.systems`, everywhere. A system is one config; its runs differ in
their seeds alone. Numbers that do not exist (an empty bucket, one seed) are None, never NaN.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from nmt.compare.report import Metric

FORMAT = 1  # of the JSON file


@dataclass(frozen=True)
class Curve:
    """How one run learnt."""

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
    tokens_per_second: float | None  # of the target, in training, median
    dev_perplexity: float | None  # the best
    curve: Curve


@dataclass(frozen=True)
class System:
    """One config, trained with one or more seeds."""

    label: str  # as `relative, max 100`
    parameters: int  # of the whole model
    encoding_parameters: int  # of its encodings
    longest_trained: int | None  # longest source in training, in the unit of the tests' lengths
    runs: list[TrainedRun]


@dataclass(frozen=True)
class Score:
    """A system's score in one bucket."""

    mean: float  # over seeds
    deviation: float | None  # standard deviation over seeds (n - 1); None for one seed
    seeds: list[float]  # by run
    low: float  # 95% interval of the mean: bootstrap over the pairs, seeds held fixed
    high: float
    p: float | None  # paired bootstrap of the means, against system 0; None for that, and few pairs
    published: float | None = None  # the same cell in the paper


@dataclass(frozen=True)
class Diagnosis:
    """Signs of under-translation in one bucket; means over seeds, each a share from 0 to 1."""

    repeated: float | None  # of the hypotheses' 4-grams, those that stood earlier in the line
    repeated_reference: float | None  # the same of the references
    unattended: float | None  # of source pieces, those that no output piece attended to
    dropped_half: float | None  # of joined pairs, those whose second half was not translated


@dataclass(frozen=True)
class Cell:
    """One system in one bucket."""

    scores: dict[str, Score]  # by metric; empty in an empty bucket
    ratio: float | None  # tokens of the hypotheses over those of the references
    unseen: bool  # every source of the bucket is longer than any in the system's training
    diagnosis: Diagnosis | None = None  # None where it was not asked for, or the bucket is empty


@dataclass(frozen=True)
class Row:
    """One bucket of source lengths, or all pairs."""

    name: str  # `26-50`, `over 100`, `all`
    low: int
    high: int | None  # None: no end
    pairs: int
    few: bool  # too few pairs for more than a hint
    cells: list[Cell]  # by system


@dataclass(frozen=True)
class Hypothesis:
    """What one system made of one source: of its first run, to be read."""

    text: str
    score: float  # chrF2 of the sentence, 0 to 100
    coverage: list[float] | None  # by source piece: attention it got over all output pieces


@dataclass(frozen=True)
class Example:
    """A test pair with the translations side by side."""

    line: int  # in the test set, from 1
    why: str  # `most different` | `worst`
    source: str
    reference: str
    length: int
    bucket: str
    pieces: list[str] | None  # of the source, as the coverage counts them
    hypotheses: list[Hypothesis]  # by system


@dataclass(frozen=True)
class Test:
    """One test set, scored."""

    name: str  # `newstest_all`
    about: str  # a sentence on what it is
    unit: str | None  # what a length counts; None: no source, hence no buckets
    longest: int | None  # longest source
    metrics: list[Metric]  # the first is the main one
    rows: list[Row]  # the buckets, then all pairs
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class Profile:
    """Where one head looks, in one bucket of one test: of a system's first run."""

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
class Vectors:
    """Learned vectors per distance, beside sinusoids of the same distances."""

    system: int
    title: str  # `encoder, layer 1, keys`
    distances: list[int]  # key - query
    similarity: list[list[float]]  # cosine between the vectors of two distances
    sinusoids: list[list[float]]  # the same for sinusoids of this width


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper, to be laid out as there: buckets across, systems down."""

    name: str  # `Table 2`
    caption: str
    test: str  # name of one of the study's tests
    systems: list[int]  # in the paper's order
    metrics: list[str]  # shown in each cell, in order: BLEU, TER
    published: bool  # whether the scores carry published numbers
    buckets: bool = True  # False: all pairs only (the paper's Table 1)


@dataclass(frozen=True)
class Study:
    """A whole report."""

    title: str
    date: str  # YYYY-MM-DD
    command: str  # what was typed
    notes: list[str]  # sentences on data, budget and search, and on what differs from the paper
    systems: list[System]
    tests: list[Test]
    tables: list[PaperTable]
    profiles: list[Profile]
    vectors: list[Vectors]
    samples: int  # of the bootstrap
    seed: int  # of the bootstrap
    about: dict[str, Any] = field(default_factory=dict)  # versions, files, settings

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"format": FORMAT, **asdict(self)}
