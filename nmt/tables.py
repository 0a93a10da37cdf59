"""The paper's tables: the runs of an experiment, trained where they are not finished; the report.

`nmt-train experiment=table2 scale=toy` comes here. conf/experiment has the tables, conf/run their
runs, conf/scale corpus, model and budget.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar

from nmt.config import check
from nmt.config.check import MANDATORY, Between, PositiveInt, key
from nmt.config.compose import Experiment
from nmt.config.hydra_conf import AbsentError, Sweep
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.evaluation import text
from nmt.evaluation.metrics import names_of_metrics
from nmt.evaluation.options import LEAST_SAMPLES, EvaluationOptions, check_bounds
from nmt.evaluation.report import Report
from nmt.evaluation.run import evaluate
from nmt.evaluation.systems import read_named_systems
from nmt.evaluation.testsets import ParallelFiles, corpus_test
from nmt.sweep import Launcher, PlannedRun, failure_error, plan_runs, prepare_corpora, train_all
from nmt.system import outputs

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass
class LengthLimits:
    """The longest training sentences of the runs at a scale."""

    full: PositiveInt = key(MANDATORY, "pieces; the limit of most runs")
    short: PositiveInt = key(MANDATORY, "pieces; the limit of R4 and R5")


@dataclass
class ScaleTests:
    """The test sets of a scale, one for each kind of table."""

    root: str | None = key(None, "directory of the test sets; null: made from the corpus's own")
    made_by: str | None = key(None, "the command that makes them")
    official: str = key(MANDATORY, "test set of Table 1")
    single: str = key(MANDATORY, "test set of Table 2")
    joined: str = key(MANDATORY, "test set of Tables 3 and 4")
    join: PositiveInt = key(1, "so many consecutive lines of that are read as one")


@dataclass
class TableScale:
    """What conf/scale adds to a config: the proportions of the paper's tables at one size."""

    limits: LengthLimits = key(MANDATORY, "longest training sentences")
    bounds: list[PositiveInt] = key(MANDATORY, "last length of each group of the tables")
    tests: ScaleTests = key(MANDATORY, "test sets")
    remarks: list[str] = key(MANDATORY, "what the report says of this scale")


@dataclass
class TableLayout:
    """One of the paper's tables."""

    name: str = key(MANDATORY, "in the paper")
    caption: str = key(MANDATORY, "what stands above the table")
    test: Literal["official", "single", "joined"] = key(MANDATORY, "which of the scale's tests")
    metrics: list[str] = key(MANDATORY, "in each cell, in this order")
    buckets: bool = key(True, "scores by source length; false: of all pairs")


@dataclass
class TableReport:
    """What conf/experiment/table* adds to a config: a table and its options."""

    table: TableLayout = key(MANDATORY, "which table")
    samples: Annotated[int, Between(LEAST_SAMPLES)] = key(
        1000, "of the bootstrap behind intervals and tests"
    )
    attention: bool = key(True, "also measure the share of the source that is never attended to")


class PlannedTable(NamedTuple):
    """A table, composed and checked, before anything is trained."""

    sweep: Sweep
    report: TableReport
    scale: TableScale
    runs: list[PlannedRun]
    notes: list[str]  # on what is left out


def read_part(schema: type[T], experiment: Experiment) -> T:
    """The keys of a scale or table at the root of a config; UserError for the first wrong one."""
    values, keys = experiment.recipe, check.keys_of(schema)
    return check.read(schema, {name: values[name] for name in keys if name in values})


def make_table(
    table: PlannedTable, command: str, launch: Launcher | None = None
) -> tuple[list[Report], UserError | None]:
    """Train what is not finished, then report, by corpus; `launch` where Hydra has a launcher.

    A run that fails stops no other run: the tables are made without it and say so, and the
    error (70) is returned; so is that of a file that cannot be written (74). The reports are
    written next to the runs, as NAME.html, .json, .tsv and .txt.
    """
    runs = table.runs
    tests = read_tests(table)
    corpora = prepare_corpora(runs)
    finished, failed = train_all(runs, corpora, launch)
    notes = [*table.scale.remarks, *table.notes, *(f"{run.name}: {run.why}." for run in failed)]
    by_corpus: dict[str, list[PlannedRun]] = {}  # each corpus has a report
    for run in finished:
        by_corpus.setdefault(run.settings.data.name, []).append(run)
    reports, unwritten = list[Report](), None
    for corpus, trained in by_corpus.items():
        sizes = _training_sizes(trained, corpora)
        reports.append(_report(table, trained, tests[corpus], [*notes, *sizes], command))
        stem = trained[0].directory.parent / f"{table.sweep.name}"
        paths = [stem.with_name(f"{stem.name}.{form}") for form in ("txt", "json", "tsv", "html")]
        try:
            outputs.write_all((path, text.writer_of(path, reports[-1])) for path in paths)
            log.info("report: %s.html, and .json, .tsv, .txt beside it", stem)
        except UserError as error:
            unwritten = error
    return reports, failure_error(failed, len(runs)) if failed else unwritten


def plan_table(sweep: Sweep) -> PlannedTable:
    """Compose and check all runs; raises what `plan_runs` does, and for the table's own keys.

    What a scale has no corpus for is left out, with a note.
    """
    if "name" in sweep.chosen:
        raise UserError("name=: each run of a table has its own; use runs=DIR")
    names = {o.value() for job in sweep.jobs for o in job if o.key_or_group == "run"}
    if "encoding" in sweep.chosen and len(names) > 1:
        raise UserError(
            f"encoding=: {sweep} is a list of runs, each with its own encoding; choose runs by "
            "run=R1,R2, or compare encodings by experiment=compare"
        )
    runs, left_out = plan_runs(sweep)
    outputs.check_writable([], directories={run.directory.parent for run in runs})
    scale = read_part(TableScale, runs[0].experiment)
    report = read_part(TableReport, runs[0].experiment)
    check_bounds(scale.bounds)
    for language in {run.settings.data.target_language for run in runs}:
        metrics = names_of_metrics(language)
        if unknown := [name for name in report.table.metrics if name not in metrics]:
            choose = f"for {language}, choose from {', '.join(metrics)}"
            raise UserError(f"table.metrics: no metric {unknown[0]}; {choose}")
    absent: dict[str, list[str]] = {}  # why -> runs
    for overrides, error in left_out:
        kind = next(str(o.value()) for o in overrides if o.key_or_group == "run")
        why = str(error)
        if isinstance(error, AbsentError):
            why = f"scale {sweep.scale} has no {error.option}"
        if kind not in absent.setdefault(why, []):
            absent[why].append(kind)
    notes = [f"Left out: {', '.join(kinds)}; {why}." for why, kinds in absent.items()]
    return PlannedTable(sweep, report, scale, runs, notes)


def label_of(run: PlannedRun) -> str:
    """The paper's name for a run, unless the command line changed what it is; with its limit."""
    experiment, row = run.experiment, run.experiment.recipe.get("row")
    if row is None or any(o.startswith("encoding") for o in experiment.overrides):
        label = " + ".join(run.settings.encoding)
    else:
        label = row.rsplit(" ", 1)[0]
    changed = "-".join(experiment.changed)
    return ", ".join(filter(None, [label, f"max {run.settings.data.max_length}", changed]))


def _training_sizes(runs: Sequence[PlannedRun], corpora: Mapping[str, Prepared]) -> list[str]:
    counts = {r.settings.data.max_length: corpora[r.name].facts["train_pairs"] for r in runs}
    pairs = [f"{count:,} pairs up to {limit}" for limit, count in counts.items()]
    return [f"Training text, by the limit in pieces: {', '.join(pairs)}."]


def _report(
    table: PlannedTable,
    runs: Sequence[PlannedRun],
    test: ParallelFiles,
    notes: list[str],
    command: str,
) -> Report:
    layout = table.report.table
    options = EvaluationOptions(
        bounds=table.scale.bounds if layout.buckets else (),
        metrics=layout.metrics,
        samples=table.report.samples,
        decode=vars(runs[0].settings.decode),  # of all runs, and not as when they were trained
        device=runs[0].settings.trainer.device,
        attention=table.report.attention,
        title=f"{layout.name}, scale {table.sweep.scale}: {layout.caption}",
        command=command,
        notes=notes,
    )
    systems = read_named_systems((label_of(run), str(run.directory)) for run in runs)
    return evaluate(systems, [test], options)


def read_tests(table: PlannedTable) -> dict[str, ParallelFiles]:
    """The test set of a table for each corpus of its runs, by the name of the corpus.

    Raises UserError for files that are missing (66) or not parallel (65).
    """
    kind, by_corpus = table.report.table.test, dict[str, ParallelFiles]()
    for run in table.runs:
        if (corpus := run.settings.data.name) in by_corpus:
            continue
        tests = read_part(TableScale, run.experiment).tests  # R9 and R10 have others
        name: str = getattr(tests, kind)
        join = tests.join if kind == "joined" else 1
        test = corpus_test(run.settings, join)._replace(name=name)
        if tests.root is not None:
            data, root = run.settings.data, Path(tests.root)
            source, target = (
                root / f"{name}.{code}" for code in (data.source_language, data.target_language)
            )
            about = f"{name} in {root}{f', each {join} lines joined' if join > 1 else ''}."
            test = test._replace(about=about, sources=[source], references=[target])
            for _, path in test.paths:
                if not path.is_file():
                    how = f"{tests.made_by} makes it" if tests.made_by else "see tests.root"
                    raise UserError(f"{path}: no such file; {how}", Exit.NO_INPUT)
        test.read()  # says what is wrong before anything is trained
        by_corpus[corpus] = test
    return by_corpus
