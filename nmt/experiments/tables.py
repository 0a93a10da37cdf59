"""The paper's tables: the runs of an experiment, trained where they are not finished; the report.

`nmt-train experiment=table2 scale=toy` comes here. Which runs a table has, conf/experiment says;
what a run is, conf/run; corpus, model and budget, conf/scale.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.compare import page, text
from nmt.compare.buckets import check_bounds
from nmt.compare.report import PaperTable, Report
from nmt.compare.scores import NAMES, refuse_moses
from nmt.config import freeze
from nmt.data.prepare import Prepared
from nmt.errors import UserError
from nmt.experiments import outputs, testsets
from nmt.experiments.evaluate import evaluate
from nmt.experiments.options import EvaluationOptions
from nmt.experiments.plan import PlannedRun, failure_error, plan_runs, prepare_corpora
from nmt.experiments.run import Launcher, parallel_runs, train_all
from nmt.experiments.systems import System, SystemModel
from nmt.overrides.compose import AbsentError
from nmt.overrides.sweep import Sweep
from nmt.overrides.tables import TableReport, TableScale
from nmt.storage import manifest

log = logging.getLogger(__name__)


class PlannedTable(NamedTuple):
    """All that is known of a table before anything is trained."""

    sweep: Sweep
    report: TableReport
    scale: TableScale
    runs: list[PlannedRun]
    notes: list[str]  # on what is left out


def make_table(
    table: PlannedTable, command: str, launch: Launcher | None = None
) -> tuple[list[Report], UserError | None]:
    """Train what is not finished, then report, by corpus; `launch` where Hydra has a launcher.

    A run that fails does not stop the others: the tables are made without it and say so, and
    the error (70) comes back; so does that of a file that cannot be written (74). Nothing is
    trained before all has been checked: see `plan_table`.
    The reports are written next to the runs, as NAME.html, .json, .tsv and .txt.
    """
    runs = table.runs
    experiments, kind = [run.experiment for run in runs], table.report.table.test
    tests = testsets.table_tests(experiments, kind, table.report.by_sentence)
    corpora = prepare_corpora(runs)
    finished, failed = train_all(runs, corpora, launch)
    notes = [*table.scale.remarks, *table.notes, *(f"{run.name}: {run.why}." for run in failed)]
    by_corpus: dict[str, list[PlannedRun]] = {}  # runs on different ones make reports of their own
    for run in finished:
        by_corpus.setdefault(run.settings.data.name, []).append(run)
    reports, unwritten = list[Report](), None
    for corpus, trained in by_corpus.items():
        systems, facts = systems_of_runs(trained, corpora), _training_sizes(trained, corpora)
        reports.append(_report(table, systems, tests[corpus], [*notes, *facts], command))
        try:
            _write(reports[-1], trained[0].directory.parent / f"{table.sweep.name}")
        except UserError as error:
            unwritten = error
    return reports, failure_error(failed, len(runs)) if failed else unwritten


def plan_table(sweep: Sweep) -> PlannedTable:
    """Compose and check all runs; raises what `plan_runs` does, and for the table's own keys.

    What a scale has no corpus for is left out, with a note.
    """
    if "name" in sweep.chosen:
        raise UserError("name=: each run of a table has its own; use runs=DIR")
    runs, left_out = plan_runs(sweep)
    outputs.check_writable([], directories={run.directory.parent for run in runs})
    first = runs[0].experiment
    assert first.table is not None and first.scale is not None, "it is the table of a scale"
    check_bounds(first.scale.bounds, "bounds=")
    if unknown := [name for name in first.table.table.metrics if name not in NAMES]:
        raise UserError(f"table.metrics: no metric {unknown[0]}; choose from {', '.join(NAMES)}")
    for language in {run.settings.data.target_language for run in runs}:
        refuse_moses("table.metrics", first.table.table.metrics, language)
    absent: dict[str, list[str]] = {}  # why -> runs
    for overrides, error in left_out:
        kind = next(str(o.value()) for o in overrides if o.key_or_group == "run")
        why = str(error)
        if isinstance(error, AbsentError):
            why = f"scale {sweep.scale} has no {error.option}"
        if kind not in absent.setdefault(why, []):
            absent[why].append(kind)
    notes = [f"Left out: {', '.join(kinds)}; {why}." for why, kinds in absent.items()]
    return PlannedTable(sweep, first.table, first.scale, runs, notes)


def systems_of_runs(runs: Sequence[PlannedRun], corpora: Mapping[str, Prepared]) -> list[System]:
    """The rows of trained runs; those that differ in the seed alone are one."""
    rows: dict[bytes, list[PlannedRun]] = {}
    for run in runs:
        rows.setdefault(manifest.dump({**freeze(run.settings), "seed": None}), []).append(run)
    return [
        system_of(same, str(corpora[same[0].name].facts["fingerprint"])) for same in rows.values()
    ]


def system_of(runs: Sequence[PlannedRun], fingerprint: str) -> System:
    """The row of trained runs that differ in the seed, searched with as the command line says.

    The fingerprint is that of their corpus. The row has the paper's name for them, unless the
    command line changed what they are.
    """
    experiment, settings = runs[0].experiment, runs[0].settings
    limit, scale, row = settings.data.max_length, experiment.scale, experiment.row
    if row is None or any(o.startswith("encoding") for o in experiment.overrides):
        label, row = " + ".join(settings.encoding), None
    else:
        label = row.rsplit(" ", 1)[0]
    same = row is not None and not experiment.changed and row.endswith(f" {limit}")
    changed = "-".join(experiment.changed)
    return System(
        ", ".join([label, f"max {limit}", *([changed] if changed else [])]),
        [
            SystemModel(str(run.directory), (run.directory,), run.settings, fingerprint)
            for run in runs
        ],
        published=row if same and scale is not None and scale.paper else None,
    )


def _training_sizes(runs: Sequence[PlannedRun], corpora: Mapping[str, Prepared]) -> list[str]:
    """How much text each limit leaves."""
    counts = {r.settings.data.max_length: corpora[r.name].facts["train_pairs"] for r in runs}
    pairs = [f"{count:,} pairs up to {limit}" for limit, count in counts.items()]
    return [f"Training text, by the limit in pieces: {', '.join(pairs)}."]


def _report(
    table: PlannedTable,
    systems: list[System],
    test: testsets.ParallelFiles,
    notes: list[str],
    command: str,
) -> Report:
    """Make the report of the systems on one corpus."""
    layout = table.report.table
    paper_table = PaperTable(
        name=layout.name,
        caption=layout.caption,
        test=test.name,
        systems=list(range(len(systems))),
        metrics=layout.metrics,
        published=table.scale.paper,
        buckets=layout.buckets,
    )
    options = EvaluationOptions(
        bounds=table.scale.bounds,
        samples=table.report.samples,
        jobs=parallel_runs(table.runs),
        device=systems[0].models[0].settings.trainer.device,
        attention=table.report.attention,
        title=f"{layout.name}, scale {table.sweep.scale}",
        command=command,
        notes=notes,
    )
    return evaluate(systems, [test], options, [paper_table])


def _write(report: Report, stem: Path) -> None:
    """Write a report as text, JSON, TSV and a page; raises UserError (74)."""
    forms = {
        "txt": lambda: text.render(report),
        "json": lambda: outputs.as_json(report.to_json()),
        "tsv": lambda: text.tsv(report),
        "html": lambda: page.html(report),
    }
    outputs.write_all(
        (stem.with_name(f"{stem.name}.{ending}"), outputs.text_writer(render))
        for ending, render in forms.items()
    )
    log.info("report: %s.html, and .json, .tsv, .txt beside it", stem)
