"""The paper's tables: the runs of an experiment, trained where they are not finished; the report.

`nmt-train experiment=table2 scale=toy` comes here. Which runs a table has, conf/experiment says;
what a run is, conf/run; corpus, model and budget, conf/scale.
"""

import io
import logging
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt import build, manifest
from nmt.compare import buckets
from nmt.compare.ranking import MissingSystem
from nmt.compare.scores import NAMES
from nmt.config import Settings, TableReport, TableScale, freeze
from nmt.data.joined import by_sentence
from nmt.data.report import log_remarks
from nmt.errors import Exit, UserError
from nmt.experiments import outputs
from nmt.experiments import run as contest
from nmt.experiments import table_tests as tabletests
from nmt.experiments.processes import cores, gpus, last_line
from nmt.experiments.run import Entrant
from nmt.overrides.compose import AbsentError, Sweep, experiment_of

if TYPE_CHECKING:
    from nmt.data.prepare import Prepared

log = logging.getLogger(__name__)

Launch = Callable[[list[str]], None]  # trains all that these words of nmt-train mean


class Planned(NamedTuple):
    """One training run of the table."""

    entrant: Entrant
    label: str  # of its row
    published: str | None  # its row in the paper, as `absolute 100`
    config: str  # its settings but for the seed: runs that share them are one row

    @property
    def settings(self) -> Settings:
        """Its settings."""
        return self.entrant.asked.settings

    @property
    def corpus(self) -> str:
        """Names the corpus; runs on different ones make reports of their own."""
        return self.settings.data.name


class Plan(NamedTuple):
    """All that is known before anything is trained."""

    report: TableReport
    scale: TableScale
    runs: list[Planned]
    notes: list[str]  # on what is left out


def make(sweep: Sweep, typed: Sequence[str], launch: Launch | None = None) -> None:
    """Train what is not finished, then report; `launch` does it where Hydra has a launcher.

    A run that fails does not stop the others: the tables are made without it and say so, and
    then UserError (70) is raised. Nothing is trained before all has been checked: see `plan`.
    """
    planned = plan(sweep)
    report, runs = planned.report, planned.runs
    entrants = [each.entrant for each in runs]
    tests = tabletests.find_all([each.entrant.asked for each in runs], report.table.test)
    if report.by_sentence:
        for test in tests.values():
            by_sentence(test.source)  # says what is wrong before anything is trained
    corpora = prepared(runs)
    pending = _pending(entrants, corpora)
    at_once = report.jobs or places(runs[0].settings)
    log.info(
        "%d runs, %d of them finished, %d at once", len(runs), len(runs) - len(pending), at_once
    )
    failed = trained(sweep, pending, corpora, at_once, launch)
    lost = {each.label for each in failed}
    whole = [each for each in runs if each.entrant.name not in lost]
    remarks = [*planned.scale.remarks, *planned.notes, *(f"{m.label}: {m.why}." for m in failed)]
    for corpus in dict.fromkeys(each.corpus for each in whole):
        part = [each for each in whole if each.corpus == corpus]
        kept = {each.settings.data.max_length: corpora[each.entrant.name].facts for each in part}
        notes = [*remarks, *_common(part, at_once), *_pairs(kept)]
        command = shlex.join(["nmt-train", *typed])
        _report(sweep, planned, part, tests[corpus], notes, command, at_once)
    if failed:
        told = "; ".join(f"{m.label}: {m.why}{f'; see {m.log}' if m.log else ''}" for m in failed)
        raise UserError(f"{len(failed)} of {len(runs)} runs failed: {told}", Exit.DIVERGED)


def plan(sweep: Sweep) -> Plan:
    """Compose and check all runs; raises UserError for the first that cannot be.

    Also for one whose directory is in use, or holds a run of another config. What a scale has no
    corpus for is left out, with a note, unless the command line asks for it by `run=`.
    """
    if "name" in sweep.chosen:
        raise UserError("name=: each run of a table has its own; use runs=DIR")
    runs: list[Planned] = []
    absent: dict[str, list[str]] = {}  # the option that is not there -> runs
    for words in sweep.jobs:
        try:
            one = experiment_of(words)._replace(elsewhere="runs=DIR")
        except AbsentError as error:
            named = next((w.removeprefix("run=") for w in words if w.startswith("run=")), None)
            if named is None or "run" in sweep.chosen:
                raise
            if named not in absent.setdefault(error.option, []):
                absent[error.option].append(named)
            continue
        build.check(one.settings)
        runs.append(_planned(Entrant("", words, one)))
    if not runs:
        raise UserError(f"experiment={sweep.name}: no run is left; there is no {', '.join(absent)}")
    runs = _named(runs)
    for each in runs:
        contest.trained(each.entrant.asked)
    notes = [
        f"Left out: {', '.join(names)}; scale {sweep.scale} has no {option}."
        for option, names in absent.items()
    ]
    first = runs[0].entrant.asked
    assert first.table is not None and first.scale is not None, "it is the table of a scale"
    buckets.check(first.scale.bounds, "bounds=")
    if odd := [name for name in first.table.table.metrics if name not in NAMES]:
        raise UserError(f"table.metrics: no metric {odd[0]}; choose from {', '.join(NAMES)}")
    return Plan(first.table, first.scale, runs, notes)


def _planned(entrant: Entrant) -> Planned:
    """A run with its row: the paper's name for it, unless the command line changed what it is."""
    one = entrant.asked
    limit, scale = one.settings.data.max_length, one.scale
    label, row = " + ".join(one.settings.encoding), one.row
    if row is None or any(word.startswith("encoding") for word in entrant.words):
        row = None
    else:
        label = row.rsplit(" ", 1)[0]
    same = row is not None and not one.changed and row.endswith(f" {limit}")
    changed = "-".join(one.changed)
    return Planned(
        entrant,
        ", ".join([label, f"max {limit}", *([changed] if changed else [])]),
        row if same and scale is not None and scale.paper else None,
        manifest.dump({**freeze(one.settings), "seed": None}).decode(),
    )


def _named(runs: list[Planned]) -> list[Planned]:
    """Give each run a name of its own; UserError where two would share a directory."""
    by_directory: dict[Path, Planned] = {}
    for each in runs:
        directory = each.entrant.asked.run
        if directory in by_directory:
            other = by_directory[directory].entrant
            differing = [w for w in each.entrant.words if w not in other.words]
            raise UserError(
                f"{' '.join(differing) or 'a run named twice'}: would share {directory} with "
                "another run; a table sweeps run, seed, and keys of the encodings"
            )
        by_directory[directory] = each
    several = len({each.corpus for each in runs}) > 1
    named = []
    for each in runs:
        name = each.entrant.asked.run.name
        name = f"{each.corpus}-{name}" if several else name
        named.append(each._replace(entrant=each.entrant._replace(name=name)))
    return named


def places(settings: Settings) -> int:
    """How many runs go on at once: one for each GPU, else as many as there are cores for."""
    if settings.trainer.device != "cpu" and (there := gpus()):
        return len(there)
    return max(1, cores() // (settings.trainer.threads or 1))  # jobs have one thread by default


def prepared(runs: Sequence[Planned]) -> dict[str, "Prepared"]:
    """Prepare each corpus once, before its many readers start; by name of the run.

    Raises UserError as `prepare` does, and 65 for a run that was trained on another one.
    """
    from nmt.data.prepare import prepare

    known: dict[bytes, Prepared] = {}
    corpora = {}
    for each in runs:
        plain = freeze(each.settings)
        key = manifest.dump([plain["data"], plain["segmenter"]])
        if key not in known:
            known[key] = prepare(each.settings.data, each.settings.segmenter)
            log_remarks(known[key].facts["corpus"])
        corpora[each.entrant.name] = known[key]
        _pending([each.entrant], corpora)
    return corpora


def _pending(entrants: Sequence[Entrant], corpora: Mapping[str, "Prepared"]) -> list[Entrant]:
    """Those that are not finished; raises UserError (65) for one on another corpus."""
    return [
        entrant
        for entrant in entrants
        if contest.finished(entrant.asked, corpora[entrant.name].facts["fingerprint"]) is None
    ]


def trained(
    sweep: Sweep,
    pending: list[Entrant],
    corpora: Mapping[str, "Prepared"],
    at_once: int,
    launch: Launch | None,
) -> list[MissingSystem]:
    """Train what is pending; those that failed or stopped early are returned."""
    if not pending or launch is None:
        return contest.train_all(pending, corpora, at_once)
    waiting = [word for entrant in pending for word in entrant.words if word.startswith("run=")]
    runs = ",".join(dict.fromkeys(word.removeprefix("run=") for word in waiting))
    launch([f"run={runs}"] if runs else [])
    return [_unfinished(each) for each in _pending(pending, corpora)]


def _unfinished(entrant: Entrant) -> MissingSystem:
    where = entrant.asked.run.with_name(f"{entrant.asked.run.name}.log")  # of `train.launch`
    return MissingSystem(entrant.name, f"training did not end: {last_line(where)}", str(where))


def _common(runs: list[Planned], at_once: int) -> list[str]:
    """Corpus, size and budget of all runs, and their seeds."""
    one = runs[0].settings
    seeds = ", ".join(str(seed) for seed in sorted({each.settings.seed for each in runs}))
    told = contest.caption(one, at_once)[:2]
    return [line.replace(f"; seed {one.seed}.", f"; seeds {seeds}.") for line in told]


def _pairs(kept: dict[int, dict[str, Any]]) -> list[str]:
    """How much of the training text each limit leaves."""
    told = [f"{facts['train_pairs']:,} pairs up to {limit}" for limit, facts in kept.items()]
    return [f"Training text, by the limit in pieces: {', '.join(told)}."]


def _report(
    sweep: Sweep,
    planned: Plan,
    runs: list[Planned],
    test: tabletests.TextPair,
    notes: list[str],
    command: str,
    at_once: int,
) -> None:
    """Make the report of the runs on one corpus, in the directory that they lie in."""
    from nmt.experiments import report as study

    rows: dict[str, list[Planned]] = {}
    for each in runs:
        rows.setdefault(each.config, []).append(each)
    groups = [
        study.Group(same[0].label, [each.entrant for each in same], same[0].published)
        for same in rows.values()
    ]
    report, layout = planned.report, planned.report.table
    table = study.TableAsked(
        name=layout.name,
        caption=layout.caption,
        test=test.name,
        groups=list(range(len(groups))),
        metrics=layout.metrics,
        published=planned.scale.paper,
        buckets=layout.buckets,
    )
    where = runs[0].entrant.asked.run.parent
    html, plain, tsv, text = (
        where / f"{sweep.name}.{ending}" for ending in ("html", "json", "tsv", "txt")
    )
    wanted = study.Wanted(html, plain, tsv, report.attention, report.samples, at_once)
    shown = io.StringIO()
    with redirect_stdout(shown):
        study.report(
            f"{layout.name}, scale {sweep.scale}",
            command,
            notes,
            groups,
            [study.TestAsked(*test, report.by_sentence)],
            [table],
            planned.scale.bounds,
            wanted,
        )
    outputs.write(text, shown.getvalue().encode())
    sys.stdout.write(shown.getvalue())
    sys.stdout.flush()
    log.info("report: %s, and .json, .tsv, .txt beside it", html)
