"""The runs of a sweep or table: composed and checked before the first of them starts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.types import Override

from nmt import corpus, preflight
from nmt.config import Settings
from nmt.data.prepare import Prepared
from nmt.data.report import log_remarks
from nmt.errors import Exit, UserError
from nmt.experiments import lengthen
from nmt.overrides.compose import AbsentError, Experiment, composed
from nmt.overrides.sweep import Sweep
from nmt.training.directory import config_is_settled
from nmt.training.run import Outcome, open_run
from nmt.training.session import check_start


class PlannedRun(NamedTuple):
    """One training run of several."""

    name: str  # in tables and messages; no other run of the plan has it
    experiment: Experiment

    @property
    def settings(self) -> Settings:
        """The settings of the run."""
        return self.experiment.settings

    @property
    def directory(self) -> Path:
        """Where the model lies, or will."""
        return self.experiment.run

    @property
    def log(self) -> Path:
        """The file with the output of its training, next to its directory."""
        return self.directory.with_name(f"{self.directory.name}.log")


class FailedRun(NamedTuple):
    """A run that failed, or stopped early."""

    name: str
    why: str
    log: Path


class LeftOut(NamedTuple):
    """A run that cannot be, and that the command line does not name itself."""

    overrides: list[Override]
    why: UserError

    def __str__(self) -> str:
        named = [o.input_line for o in self.overrides if o.key_or_group in ("run", "encoding")]
        return f"{' '.join(map(str, named or self.overrides))}: {self.why}"


def plan_runs(sweep: Sweep) -> tuple[list[PlannedRun], list[LeftOut]]:
    """Compose and check all runs; raises UserError for the first that cannot be.

    Also for one whose directory is another's, is in use, or holds a run of another config. What
    cannot be among the runs of a glob is left out, and so is what a scale has no corpus for, unless
    it was named by `run=`.
    """
    experiments, left_out = list[Experiment](), list[LeftOut]()
    for overrides in sweep.jobs:
        try:
            experiments.append(_checked(overrides, sweep)._replace(elsewhere="runs=DIR"))
        except UserError as error:
            absent = isinstance(error, AbsentError) and sweep.table and "run" not in sweep.chosen
            if not (sweep.globbed or absent):
                row = next((str(o.input_line) for o in overrides if o.key_or_group == "run"), "")
                if row and row not in str(error):
                    raise UserError(f"{row}: {error}", error.code) from None
                raise
            left_out.append(LeftOut(overrides, error))
    if not experiments:
        raise UserError(f"{sweep}: no run is left; {left_out[0].why}")
    _check_directories(experiments, sweep)
    names = [experiment.run.name for experiment in experiments]
    if len(set(names)) < len(names):
        names = [str(experiment.run) for experiment in experiments]
    runs = [PlannedRun(*named) for named in zip(names, experiments, strict=True)]
    for run in runs:
        if outcome_of(run) is None:  # which refuses the directory of another run
            check_start(run.settings, begun=config_is_settled(run.directory))
    return runs, left_out


def _checked(overrides: list[Override], sweep: Sweep) -> Experiment:
    experiment = composed(overrides)
    if experiment.table is not None and not sweep.table:
        chosen = next(o.input_line for o in overrides if o.key_or_group == "experiment")
        raise UserError(f"{chosen}: make one table at a time, each without -m")
    preflight.check(experiment.settings)
    if experiment.parent is not None:
        lengthen.check(experiment)
    return experiment


def _check_directories(experiments: Sequence[Experiment], sweep: Sweep) -> None:
    """Raise UserError if two runs would share a directory."""
    by_directory: dict[Path, Experiment] = {}
    for experiment in experiments:
        if (other := by_directory.setdefault(experiment.run, experiment)) is experiment:
            continue
        if not (differing := [o for o in experiment.overrides if o not in other.overrides]):
            raise UserError(f"{experiment.run}: the same run twice; name each value once")
        advice = "tell them apart by name=, which may hold ${...} of a key"
        if sweep.table:
            advice = "a table sweeps run, seed, and keys of the encodings"
        raise UserError(
            f"{' '.join(differing)}: would share {experiment.run} with another run; {advice}"
        )


def outcome_of(run: PlannedRun, corpus: Prepared | None = None) -> Outcome | None:
    """How a run ended that has made all its updates; None if it has not, or never began.

    Raises UserError for a directory that is in use, damaged, or of another config, and (65) for a
    run on another corpus than this one, if there is one.
    """
    if not run.directory.exists():
        return None
    with open_run(run.directory, run.settings, elsewhere=run.experiment.elsewhere) as opened:
        if not opened.finished:
            return None
        if corpus is None:
            return opened.outcome()
        opened.refuse_other_data(corpus.facts["fingerprint"])
        return opened.end(opened.step)


def prepare_corpora(runs: Sequence[PlannedRun]) -> dict[str, Prepared]:
    """Prepare each corpus once, before its many readers start; by name of the run.

    Raises UserError as `prepare` does.
    """
    by_settings: dict[bytes, Prepared] = {}
    for run in runs:
        if (key := corpus.key(run.settings)) not in by_settings:
            by_settings[key] = corpus.prepare(run.settings, run.directory)
            log_remarks(by_settings[key].report)
    return {run.name: by_settings[corpus.key(run.settings)] for run in runs}


def failure_error(failed: Sequence[FailedRun], count: int) -> UserError:
    """The error (70) that names those of `count` runs which failed, and their logs."""
    reasons = "; ".join(f"{run.name}: {run.why}; see {run.log}" for run in failed)
    return UserError(f"{len(failed)} of {count} runs failed: {reasons}", Exit.DIVERGED)
