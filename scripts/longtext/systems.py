"""The systems of a part, each with the records of its seeds, and estimates of what they score."""

from collections.abc import Sequence
from functools import cache
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare import scoring
from nmt.compare.report import ScoredTest
from nmt.compare.scores import Scorer, scorers
from nmt.compare.scoring import Bootstrap, RunCounts, TranslatedTest
from nmt.compare.significance import Floats, interval, p_value
from nmt.errors import Exit, UserError
from scripts.longtext import records
from scripts.longtext.plan import LONGEST, Part, Places
from scripts.longtext.records import Record, Table
from scripts.longtext.texts import WHOLE

SAMPLES, SEED = 10_000, 12345  # of the bootstrap
EXPLORATORY = 1_000  # samples


class System(NamedTuple):
    """An encoding, or a remedy; its runs differ in their seeds."""

    label: str
    runs: list[Record]

    def table(self, test: str, name: str) -> list[Table]:
        """A table of a test text, by run."""
        return [run.tests[test][name] for run in self.runs]

    def known(self, name: str) -> float:
        """A fact of training: the median over runs."""
        return median(run.about[name] for run in self.runs)

    @property
    def seconds(self) -> float:
        """Per update."""
        return median(run.about["seconds"] / run.about["step"] for run in self.runs)

    def mean_share(self, test: str, name: str, lines: NDArray[np.bool_]) -> float:
        """First column over the second, of some lines: mean over runs."""
        sums = [table[lines].sum(axis=0, dtype=np.float64) for table in self.table(test, name)]
        return fmean(float(part / whole) for part, whole in sums)


class Estimate(NamedTuple):
    """A mean over seeds, and what it might have been with other lines and seeds."""

    mean: float
    samples: Floats

    def __sub__(self, other: "Estimate") -> "Estimate":
        return Estimate(self.mean - other.mean, self.samples - other.samples)

    def interval(self, tests: int = 1) -> tuple[float, float]:
        """Of 95 %, for so many tests together."""
        return interval(self.samples, tests)

    def shown(self, form: str = "z.1f", tests: int = 1) -> str:
        """`31.7 [30.9, 32.4]`, each number in this form."""
        low, high = self.interval(tests)
        return f"{self.mean:{form}} [{low:{form}}, {high:{form}}]"

    def percent(self, least: float = -1.0) -> "Estimate":
        """Of a share: in percent, its samples from `least` to 1."""
        return Estimate(100 * self.mean, 100 * np.clip(self.samples, least, 1))

    def p(self, baseline: "Estimate") -> float:
        """That chance makes it differ as much from a baseline on the same lines; two-sided."""
        return p_value(baseline.samples, self.samples, self.mean - baseline.mean)


def systems_of(places: Places, part: Part) -> list[System]:
    """The systems of a part that have records, in the order of the plan.

    Raises UserError (65) for records of other test texts than the first one's.
    """
    by_label: dict[str, list[Record]] = {}
    for run in part.runs:
        if (path := run.record(places)).exists():
            label = run.name.removesuffix(f"-seed{run.seed}")
            by_label.setdefault(label, []).append(records.read(path))
            first = next(iter(by_label.values()))[0]
            if _texts(by_label[label][-1]) != _texts(first):
                raise UserError(f"{path}: of other test texts than the records next to it; train it"
                                " again, with the others' corpus", Exit.DATA)  # fmt: skip
    return [System(*labelled) for labelled in by_label.items()]


def _texts(record: Record) -> dict[str, list[int]]:
    """What tells test texts apart: the lengths of their references."""
    return {name: tables["reference"].tolist() for name, tables in record.tests.items()}


def lengths(systems: Sequence[System], test: str, side: str = "source") -> NDArray[np.int64]:
    """Lengths of the lines of a test text, in pieces."""
    return systems[0].runs[0].tests[test][side].astype(np.int64)


def far_lines(systems: Sequence[System], part: str) -> NDArray[np.bool_]:
    """Which lines of the test text are longer than any in training."""
    return lengths(systems, WHOLE) > LONGEST[part]


def best_first(systems: Sequence[System], part: str) -> list[System]:
    """The systems by BLEU beyond the trained length."""
    values = estimates(systems, WHOLE, "BLEU", far_lines(systems, part)) if systems else {}
    return sorted(systems, key=lambda system: -values[system.label].mean)


@cache
def scorer(metric: str, samples: int = SAMPLES) -> Scorer:
    """How counts make a score; the references were needed to count."""
    return next(s for s in scorers([""], "en", None, samples, SEED) if s.name == metric)


def scored(
    systems: Sequence[System],
    test: str,
    bounds: Sequence[int],
    metrics: Sequence[str],
    samples: int = EXPLORATORY,
    side: str = "source",
) -> ScoredTest:
    """Scores in groups of lengths, and of all lines."""
    of_lines = lengths(systems, test, side).tolist()
    texts = TranslatedTest([""] * len(of_lines), [[] for _ in systems], lengths=of_lines)
    used = [scorer(metric, samples) for metric in metrics]
    bootstrap = Bootstrap(bounds, samples, SEED)
    return scoring.score_counts(texts, bootstrap, used, _counts(systems, test, metrics))


def estimates(
    systems: Sequence[System], test: str, metric: str, lines: NDArray[np.bool_]
) -> dict[str, Estimate]:
    """The score of each system on some lines, by label."""
    counts, indices = _counts(systems, test, [metric]), np.flatnonzero(lines)
    used = scorer(metric)
    drawn = scoring.sampled_means(Bootstrap([1], SAMPLES, SEED), [used], counts, indices)[metric]
    found = {}
    for system, runs, samples in zip(systems, counts, drawn, strict=True):
        mean = fmean(used.score(run[metric][lines].sum(0, dtype=np.float64)) for run in runs)
        found[system.label] = Estimate(mean, samples)
    return found


def _counts(systems: Sequence[System], test: str, metrics: Sequence[str]) -> list[list[RunCounts]]:
    needed = {*metrics, scoring.BLEU}
    return [
        [{name: run.tests[test][name].astype(np.float32) for name in needed} for run in s.runs]
        for s in systems
    ]
