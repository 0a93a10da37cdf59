"""The systems of a part, each with the records of its seeds, and estimates of what they score."""

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.compare import scoring
from nmt.compare.losses import parts_of_run
from nmt.compare.report import ScoredTest
from nmt.compare.scores import Scorer, scorers
from nmt.compare.scoring import Bootstrap, RunCounts, TranslatedTest
from nmt.compare.seeds import over_seeds
from nmt.compare.significance import Floats, interval, p_value
from nmt.errors import Exit, UserError
from scripts.longtext import records
from scripts.longtext.plan import LONGEST, Folders, Part
from scripts.longtext.records import RunRecord, Table
from scripts.longtext.texts import WHOLE

SAMPLES, SEED = 10_000, 12345  # of the bootstrap
EXPLORATORY = 1_000  # samples

ByRun = dict[str, Floats]  # by label [runs, 1 + samples]: of all lines, and of draws of lines


class SeededSystem(NamedTuple):
    """An encoding, or a remedy; its runs differ in their seeds."""

    label: str
    runs: list[RunRecord]

    def tables(self, test: str, name: str) -> list[Table]:
        """A table of a test text, by run."""
        return [run.tests[test][name] for run in self.runs]

    def median(self, name: str) -> float:
        """A fact of training: the median over runs."""
        return median(run.about[name] for run in self.runs)

    @property
    def seconds(self) -> float:
        """Per update."""
        return median(run.about["seconds"] / run.about["step"] for run in self.runs)

    def mean_share(self, test: str, name: str, lines: NDArray[np.bool_]) -> float:
        """First column over the second, of some lines: mean over runs."""
        sums = [table[lines].sum(axis=0, dtype=np.float64) for table in self.tables(test, name)]
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

    def within(self, least: float, most: float) -> "Estimate":
        """The same, its samples cut to what the score may be."""
        return Estimate(self.mean, np.clip(self.samples, least, most))

    def percent(self) -> "Estimate":
        """A share in percent."""
        return Estimate(100 * self.mean, 100 * self.samples)

    def p(self) -> float:
        """That chance makes a difference as large as this one, two-sided."""
        return p_value(np.zeros_like(self.samples), self.samples, self.mean)


def systems_of(folders: Folders, part: Part) -> list[SeededSystem]:
    """The systems of a part in the order of the plan; none until all its runs are finished.

    Raises UserError (65) for records of other settings, or of other texts, than those next to them.
    """
    if sum(run.is_finished(folders) for run in part.runs) < part.planned:
        return []
    by_label: dict[str, list[RunRecord]] = {}
    for run in part.runs:
        record = records.read(run.record(folders))
        runs = by_label.setdefault(run.label, [])
        first = next(iter(by_label.values()), runs)[:1] or [record]
        for name, other in (("texts", first[0]), ("settings", (runs or [record])[0])):
            if _known(record, name) != _known(other, name):
                raise UserError(
                    f"{run.record(folders)}: other {name} than in the records next to it; move it "
                    "away to train it again",
                    Exit.DATA,
                )
        runs.append(record)
    return [SeededSystem(*labelled) for labelled in by_label.items()]


def _known(record: RunRecord, name: str) -> dict[str, object]:
    """Texts or settings of a run, less its seed."""
    return {key: value for key, value in record.about[name].items() if key != "seed"}


def lengths(systems: Sequence[SeededSystem], test: str, side: str = "source") -> NDArray[np.int64]:
    """Lengths of the lines of a test text, in pieces."""
    return systems[0].runs[0].tests[test][side].astype(np.int64)


def far_lines(systems: Sequence[SeededSystem], part: str) -> NDArray[np.bool_]:
    """Which lines of the test text are longer than any in training."""
    return lengths(systems, WHOLE) > LONGEST[part]


@cache
def scorer(metric: str, samples: int) -> Scorer:
    """How counts make a score; the references were needed to count."""
    return next(s for s in scorers([""], "en", None, samples, SEED) if s.name == metric)


def scored(
    systems: Sequence[SeededSystem],
    test: str,
    bounds: Sequence[int],
    metrics: Sequence[str],
    side: str = "source",
    samples: int | None = None,
) -> ScoredTest:
    """Scores in groups of lengths, and of all lines; `samples`: of all planned figures, if None."""
    samples = samples or SAMPLES
    of_lines = lengths(systems, test, side).tolist()
    texts = TranslatedTest([""] * len(of_lines), [[] for _ in systems], lengths=of_lines)
    used = [scorer(metric, samples) for metric in metrics]
    bootstrap = Bootstrap(bounds, samples, SEED)
    return scoring.score_counts(texts, bootstrap, used, _counts(systems, test, metrics))


def bleu_by_run(systems: Sequence[SeededSystem], test: str, lines: NDArray[np.bool_]) -> ByRun:
    """BLEU of each run on some lines, and on the same draws of them for all."""
    counts, indices = _counts(systems, test, [scoring.BLEU]), np.flatnonzero(lines)
    used, bootstrap = scorer(scoring.BLEU, SAMPLES), Bootstrap([1], SAMPLES, SEED)
    drawn = scoring.sampled_runs(bootstrap, [used], counts, indices)[scoring.BLEU]
    found = {}
    for system, runs, samples in zip(systems, counts, drawn, strict=True):
        of_all = [used.score(run[scoring.BLEU][lines].sum(0)) for run in runs]
        found[system.label] = np.column_stack([of_all, samples])
    return found


def losses_by_run(systems: Sequence[SeededSystem]) -> dict[str, ByRun]:
    """The parts of each run's loss beyond the trained length: name of the part -> label."""
    parts = {
        system.label: [
            parts_of_run(table.astype(np.float64), SAMPLES, SEED)
            for table in system.tables(WHOLE, "losses")
        ]
        for system in systems
    }
    names = next(iter(parts.values()))[0]
    return {
        name: {label: np.array([run[name] for run in runs]) for label, runs in parts.items()}
        for name in names
    }


def estimates(values: Mapping[str, Floats]) -> dict[str, Estimate]:
    """The mean over seeds of each; seeds deviate by as much in all of these."""
    drawn = over_seeds([runs[:, 1:] for runs in values.values()], SEED)
    return {
        label: Estimate(float(runs[:, 0].mean()), samples)
        for (label, runs), samples in zip(values.items(), drawn, strict=True)
    }


def best_first(systems: Sequence[SeededSystem], part: str) -> list[SeededSystem]:
    """The systems by BLEU beyond the trained length."""
    if not systems:
        return []
    rows = scored(systems, WHOLE, [LONGEST[part]], ["BLEU"], samples=1).rows
    means = [cell.scores["BLEU"].mean for cell in rows[1].cells]
    order = sorted(range(len(systems)), key=lambda s: -means[s])
    return [systems[s] for s in order]


def _counts(
    systems: Sequence[SeededSystem], test: str, metrics: Sequence[str]
) -> list[list[RunCounts]]:
    needed = {*metrics, scoring.BLEU}
    return [
        [{name: run.tests[test][name].astype(np.float64) for name in needed} for run in s.runs]
        for s in systems
    ]
