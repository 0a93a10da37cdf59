"""The runs of a sweep or table: composed and checked before one of them starts, and trained.

Each is a process with one thread and a log file, unless a launcher of Hydra starts them.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from nmt import lengthen
from nmt.checks import preflight
from nmt.config.compose import Experiment
from nmt.config.hydra_conf import AbsentError, Sweep, lines_of
from nmt.config.settings import Settings
from nmt.corpus.prepare import Prepared
from nmt.corpus.report import log_counts
from nmt.errors import Exit, UserError
from nmt.exchange.exporting import refuse_target
from nmt.parent import experiment_of
from nmt.system.resources import cores
from nmt.training import corpus
from nmt.training import run as training
from nmt.training.directory import config_is_settled, open_run
from nmt.training.reports import METRICS, read_metrics
from nmt.training.run import Outcome, check_start
from nmt.training.signals import stop_by_error

log = logging.getLogger(__name__)
PAUSE = 0.1  # seconds between two polls of the processes


class PlannedRun(NamedTuple):
    """One training run of several."""

    name: str  # in tables and messages; no other run of the plan has it
    experiment: Experiment

    @property
    def settings(self) -> Settings:
        return self.experiment.settings

    @property
    def directory(self) -> Path:
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
        named = [o for o in self.overrides if o.key_or_group in ("run", "encoding")]
        return f"{' '.join(lines_of(named or self.overrides))}: {self.why}"


Launcher = Callable[[list[PlannedRun]], None]  # trains these runs, each with its log


def plan_runs(sweep: Sweep) -> tuple[list[PlannedRun], list[LeftOut]]:
    """Compose and check all runs; UserError for the first that cannot be trained.

    Also for a directory of two runs, in use, or of a run with another config. Of a glob, runs that
    cannot be trained are left out; so are runs for which a scale has no corpus, unless `run=` names
    them.
    """
    experiments, left_out = list[Experiment](), list[LeftOut]()
    for overrides in sweep.jobs:
        try:
            experiments.append(_checked(overrides, sweep))
        except UserError as error:
            absent = isinstance(error, AbsentError) and sweep.table and "run" not in sweep.chosen
            if not (sweep.globbed or absent):
                raise
            left_out.append(LeftOut(overrides, error))
    if not experiments:
        raise UserError(f"{sweep}: no run is left; {left_out[0].why}")
    _check_directories(experiments)
    names = [experiment.run.name for experiment in experiments]
    if len(set(names)) < len(names):
        names = [str(experiment.run) for experiment in experiments]
    runs = [PlannedRun(*named) for named in zip(names, experiments, strict=True)]
    for run in runs:
        if outcome_of(run) is None:  # which refuses the directory of another run
            check_start(run.settings, config_is_settled(run.directory), refuse_target)
    return runs, left_out


def _checked(overrides: list[Override], sweep: Sweep) -> Experiment:
    experiment = experiment_of(lines_of(overrides))
    if "table" in experiment.recipe and not sweep.table:
        chosen = next(o.input_line for o in overrides if o.key_or_group == "experiment")
        raise UserError(f"{chosen}: make one table at a time, each without -m")
    preflight.check(experiment.settings)
    lengthen.check(experiment)
    return experiment


def _check_directories(experiments: Sequence[Experiment]) -> None:
    """Raise UserError if two runs would share a directory."""
    by_directory: dict[Path, Experiment] = {}
    for experiment in experiments:
        if (other := by_directory.setdefault(experiment.run, experiment)) is experiment:
            continue
        if not (differing := [o for o in experiment.overrides if o not in other.overrides]):
            raise UserError(f"{experiment.run}: the same run twice; name each value once")
        raise UserError(
            f"{' '.join(differing)}: would share {experiment.run} with another run; tell them "
            "apart by name=, which may hold ${...} of a key (a table by seed and keys of encodings)"
        )


def outcome_of(run: PlannedRun, corpus: Prepared | None = None) -> Outcome | None:
    """Return the outcome of a finished run; None if it is not finished, or never began.

    Raises UserError for a directory that is in use, damaged, or of another config, and (65) for a
    run on another corpus than `corpus`.
    """
    if not run.directory.exists():
        return None
    with open_run(run.directory, run.settings) as opened:
        if not opened.finished:
            return None
        if corpus is not None:
            training.refuse_other_data(opened, corpus.facts["fingerprint"])
            opened.write_config()
        return training.outcome_of(opened)


def prepare_corpora(runs: Sequence[PlannedRun]) -> dict[str, Prepared]:
    """Prepare each corpus once, before its many readers start; by name of the run."""
    by_settings: dict[bytes, Prepared] = {}
    for run in runs:
        if (key := corpus.key(run.settings)) not in by_settings:
            by_settings[key] = corpus.prepare(run.settings, run.directory)
            log_counts(by_settings[key].report)
    return {run.name: by_settings[corpus.key(run.settings)] for run in runs}


def train_all(
    runs: Sequence[PlannedRun], corpora: Mapping[str, Prepared], launch: Launcher | None = None
) -> tuple[list[PlannedRun], list[FailedRun]]:
    """Train all unfinished runs; return the runs that are finished then, and those that failed.

    `corpora`: the prepared corpus of each run, by its name. Each run is a process, as many at once
    as `jobs=` says or as fit, unless `launch` starts them. The same call again resumes them. Raises
    UserError for a run that `outcome_of` refuses, before any starts.
    """
    pending = [run for run in runs if outcome_of(run, corpora[run.name]) is None]
    at_once = runs[0].experiment.jobs or free_slots(runs[0].settings)
    finished = len(runs) - len(pending)
    log.info("%d runs, %d of them finished, %d at once", len(runs), finished, at_once)
    for run in pending:
        run.directory.parent.mkdir(parents=True, exist_ok=True)
    codes: dict[str, int] = {}
    if pending and launch is not None:
        launch(pending)
    elif pending:
        codes = run_processes(pending, at_once)
    reasons = {r.name: _why_unfinished(r, corpora[r.name], codes.get(r.name)) for r in pending}
    failed = [FailedRun(r.name, why, r.log) for r in pending if (why := reasons[r.name])]
    return [run for run in runs if not reasons.get(run.name)], failed


def _why_unfinished(run: PlannedRun, corpus: Prepared, code: int | None) -> str | None:
    """Say why a run is not finished, by the exit code of its process, if any; None: it is."""
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


def free_slots(settings: Settings) -> int:
    """Count the runs that fit at once: one per GPU, or one on a named GPU; else by cores."""
    if settings.trainer.device.startswith("cuda:"):
        return 1
    if settings.trainer.device != "cpu" and (available := gpus()):
        return len(available)
    return max(1, cores() // (settings.trainer.threads or 1))  # a process has one by default


def describe_progress(directory: Path) -> str:
    """Return the last step of a run and its perplexity."""
    lines = [x for x in read_metrics(directory / METRICS) if type(x.get("perplexity")) is float]
    if not lines:
        return "starting"
    last = lines[-1]
    return f"step {last['step']}, {last['kind']} perplexity {last['perplexity']:.4g}"


def failure_error(failed: Sequence[FailedRun], count: int) -> UserError:
    """Make the UserError (70) that names the failed runs, of `count`, and their logs."""
    reasons = "; ".join(f"{run.name}: {run.why}; see {run.log}" for run in failed)
    return UserError(f"{len(failed)} of {count} runs failed: {reasons}", Exit.DIVERGED)


# Processes side by side


def gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def start(run: PlannedRun, gpu: str | None = None) -> "subprocess.Popen[bytes]":
    """Begin nmt-train; `gpu`: the one that it may see, or None: as this process does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    with run.log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "nmt.cli.train", *run.experiment.overrides],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
        )


def run_processes(
    runs: Sequence[PlannedRun],
    at_once: int,
    start: Callable[[PlannedRun, str | None], Any] = start,
    every: float = 15,
) -> dict[str, int]:
    """Train runs, `at_once` at a time, and return the exit code of each by name.

    A failure stops no other run. With several GPUs, each run sees one of them, unless its arguments
    name one. Every `every` seconds a line on stderr shows the progress of the running ones. On
    Ctrl-C, or SIGTERM and SIGUSR1 (UserError, exit 143 and 138), these are asked to stop and waited
    for: nmt-train saves first, so that the same command resumes.
    """
    waiting, codes = list(runs), dict[str, int]()
    running: dict[int, tuple[PlannedRun, Any]] = {}  # run and process by slot: GPUs have one each
    began, reported = time.monotonic(), 0.0
    with stop_by_error("; resume with the same command"):
        try:
            while waiting or running:
                for slot in range(at_once):
                    if waiting and slot not in running:
                        run = waiting.pop(0)
                        running[slot] = run, start(run, _gpu_of(run, slot))
                for slot, (run, process) in list(running.items()):
                    if (code := process.poll()) is not None:
                        codes[run.name] = code
                        del running[slot]
                if time.monotonic() - reported > every or not (running or waiting):
                    reported = time.monotonic()
                    states = [
                        f"{run.name}: {describe_progress(run.directory)}"
                        for run, _ in running.values()
                    ]
                    line = "   ".join([f"{len(codes)} of {len(runs)} ended", *states])
                    sys.stderr.write(f"{reported - began:4.0f} s  {line}\n")
                if running:
                    time.sleep(PAUSE)
        finally:
            for _, process in running.values():
                process.terminate()
            for _, process in running.values():
                process.wait()
    return codes


def _gpu_of(run: PlannedRun, slot: int) -> str | None:
    """The GPU of a slot; None without a choice, or if the arguments of the run name one."""
    if any("cuda:" in argument for argument in run.experiment.overrides) or len(gpus()) < 2:
        return None
    return gpus()[slot % len(gpus())]


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    lines = log.read_bytes().decode("utf-8", "replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")


def exit_reason(code: int) -> str:
    """An exit code in words; it is negative where a signal ended the process."""
    if code >= 0:
        return f"exit {code}"
    has_name = -code in set(signal.Signals)
    return f"killed by {signal.Signals(-code).name if has_name else f'signal {-code}'}"
