"""Train the runs of a sweep or table: one way, whichever launcher starts them."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nmt.config import Settings
from nmt.data.prepare import Prepared
from nmt.errors import UserError
from nmt.experiments.plan import FailedRun, PlannedRun, outcome_of
from nmt.experiments.processes import LoggedCommand, exit_reason, gpus, last_line, run_all
from nmt.machine.cpus import cores
from nmt.training.metrics import METRICS, read_metrics

log = logging.getLogger(__name__)

Launcher = Callable[[list[PlannedRun]], None]  # trains these runs, each with its log


def train_all(
    runs: Sequence[PlannedRun], corpora: Mapping[str, Prepared], launch: Launcher | None = None
) -> tuple[list[PlannedRun], list[FailedRun]]:
    """Train all runs that are not finished; return those that are, and those that still are not.

    `corpora`: the prepared one of each run, by its name. Each is an nmt-train of its own, some of
    them side by side (`parallel_runs`), unless `launch` starts them. The same call again goes on
    where they stopped. Raises UserError as `outcome_of` does, before any starts.
    """
    pending = [run for run in runs if outcome_of(run, corpora[run.name]) is None]
    at_once, finished = parallel_runs(runs), len(runs) - len(pending)
    log.info("%d runs, %d of them finished, %d at once", len(runs), finished, at_once)
    by_name = {run.name: run for run in pending}
    for run in pending:
        run.directory.parent.mkdir(parents=True, exist_ok=True)
    codes: dict[str, int] = {}
    if pending and launch is not None:
        launch(pending)
    elif pending:
        commands = [LoggedCommand(r.name, r.experiment.overrides, r.log) for r in pending]
        codes = run_all(commands, at_once, lambda name: progress(by_name[name].directory))
    failed = {}
    for run in pending:
        if why := _unfinished_because(run, corpora[run.name], codes.get(run.name)):
            failed[run.name] = FailedRun(run.name, why, run.log)
    return [run for run in runs if run.name not in failed], [*failed.values()]


def _unfinished_because(run: PlannedRun, corpus: Prepared, code: int | None) -> str | None:
    """Why a run is not finished, by the exit code of its process, if it had one; None: it is."""
    if code:
        return f"training failed ({exit_reason(code)}): {last_line(run.log)}"
    try:
        if outcome_of(run, corpus) is not None:
            return None
    except UserError as error:
        return str(error)
    if code is None:
        return f"training did not end: {last_line(run.log)}"
    return "training stopped before its budget was spent"


def parallel_runs(runs: Sequence[PlannedRun]) -> int:
    """How many runs go on at once: as many as `jobs` says, else as many as fit."""
    return runs[0].experiment.jobs or free_slots(runs[0].settings)


def free_slots(settings: Settings) -> int:
    """How many runs fit: one for each GPU, or on one that is named, else as many as cores serve."""
    if settings.trainer.device.startswith("cuda:"):
        return 1
    if settings.trainer.device != "cpu" and (available := gpus()):
        return len(available)
    return max(1, cores() // (settings.trainer.threads or 1))  # a process has one by default


def progress(directory: Path) -> str:
    """The last step of a run, and how perplexed the model was."""
    lines = [line for line in read_metrics(directory / METRICS).lines if "perplexity" in line]
    if not lines:
        return "starting"
    last = lines[-1]
    return f"step {last['step']}, {last['kind']} perplexity {last['perplexity']:.4g}"
