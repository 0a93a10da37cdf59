"""The typed schema of the root of a config: where runs lie, and the tables of the paper."""

from dataclasses import dataclass

from nmt.schema import knob


@dataclass
class RunKeys:
    """The directory of a run, and how many runs are trained at once; not among its settings."""

    runs: str = knob("directory of all runs")
    name: str | None = knob("directory below it; null: from data, encoding and seed")
    jobs: int | None = knob("runs at once; null: one for each GPU, or core", least=1)


@dataclass
class LengthLimits:
    """The longest training sentences of the runs at a scale."""

    full: int = knob("pieces; the limit of most runs", least=1)
    short: int = knob("pieces; the limit of R4 and R5", least=1)


@dataclass
class ScaleTests:
    """The test sets of a scale, one for each kind of table."""

    root: str | None = knob("directory of the test sets; null: made from the corpus's test text")
    made_by: str | None = knob("the command that makes them")
    official: str = knob("test set of Table 1")
    single: str = knob("test set of Table 2")
    joined: str = knob("test set of Tables 3 and 4: consecutive pairs of the above")


@dataclass
class TableScale:
    """Keys that conf/scale adds to a config: the proportions of the paper's tables at one size."""

    limits: LengthLimits = knob("longest training sentences")
    bounds: list[int] = knob("last length of each group of the tables", least=1)
    tests: ScaleTests = knob("test sets")
    paper: bool = knob("whether the paper's numbers mean the same here")
    remarks: list[str] = knob("what the report says of this scale")


@dataclass
class TableLayout:
    """One of the paper's tables."""

    name: str = knob("in the paper, whose numbers stand next to ours where they mean the same")
    caption: str = knob("what stands above the table")
    test: str = knob("which of the scale's tests", choices=("official", "single", "joined"))
    metrics: list[str] = knob("in each cell, in this order")
    buckets: bool = knob("scores by source length; false: of all pairs")


@dataclass
class TableReport:
    """Keys that conf/experiment/table* adds to a config: a table and its options."""

    table: TableLayout = knob("which table")
    samples: int = knob("of the bootstrap behind intervals and tests", least=40)
    attention: bool = knob("also measure the models' attention")
    by_sentence: bool = knob("a joined line is read as the pieces of its sentences")
