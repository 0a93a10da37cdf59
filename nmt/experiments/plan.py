"""Which runs an experiment consists of, composed and checked before the first of them starts."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmt import build, manifest
from nmt.compare.ranking import MissingSystem
from nmt.config import Settings, freeze
from nmt.data.report import log_remarks
from nmt.errors import Exit, UserError
from nmt.overrides.compose import Experiment, experiment_of
from nmt.overrides.options import quoted
from nmt.training.run import Outcome, open_run

if TYPE_CHECKING:
    from nmt.data.prepare import Prepared


class PlannedRun(NamedTuple):
    """One training run of an experiment."""

    name: str  # in tables and messages; no other run beside it has it
    experiment: Experiment

    @property
    def settings(self) -> Settings:
        """What is trained."""
        return self.experiment.settings

    @property
    def directory(self) -> Path:
        """Where the model lies, or will."""
        return self.experiment.run

    @property
    def log(self) -> Path:
        """The file with the output of its training, beside its directory."""
        return self.directory.with_name(f"{self.directory.name}.log")


def choices(value: str) -> list[str]:
    """Split `a,b,[a,b]` at the commas outside brackets."""
    return [choice.strip() for choice in re.split(r",(?![^\[]*\])", value)]


def plan_encodings(
    encodings: Sequence[str], overrides: list[str], runs: Path, lenient: bool = False
) -> tuple[list[PlannedRun], list[MissingSystem]]:
    """Compose and check a run for each encoding, all with the same overrides.

    Raises UserError for the first that is wrong, is in use, or was trained with another config.
    `lenient` (nobody asked for just these) takes those whose config cannot be as missing instead.
    """
    planned: list[PlannedRun] = []
    missing: list[MissingSystem] = []
    for encoding in encodings:
        name = encoding.strip("[]").replace(" ", "").replace(",", "+")
        arguments = [*overrides, f"encoding={encoding}", f"runs={quoted(runs)}"]
        arguments.append(f"name={quoted(name)}")
        if any(name == other.name for other in planned):
            raise UserError(f"encoding={encoding}: named twice; name it once")
        try:
            experiment = experiment_of(arguments)._replace(elsewhere="--runs")
            build.check(experiment.settings)
        except UserError as error:
            if not lenient:
                raise
            missing.append(MissingSystem(name, str(error), None))
            continue
        planned.append(PlannedRun(name, experiment))
        outcome_of(planned[-1])  # refuses the directory of another run
    return planned, missing


def outcome_of(run: PlannedRun, fingerprint: str | None = None) -> Outcome | None:
    """How a run ended that has made all its updates; None if it has not, or never began.

    Raises UserError for a directory that is in use, damaged, or of another config, and (65) for a
    run on another corpus than that of `fingerprint`, if there is one.
    """
    if not run.directory.exists():
        return None
    with open_run(run.directory, run.settings, elsewhere=run.experiment.elsewhere) as opened:
        if fingerprint is None:
            return opened.trained(run.settings)
        return opened.finished(run.settings, lambda: fingerprint)


def prepare_corpora(runs: Sequence[PlannedRun]) -> dict[str, "Prepared"]:
    """Prepare each corpus once, before its many readers start; by name of the run.

    Raises UserError as `prepare` does, and 65 for a run that was trained on another corpus.
    """
    from nmt import corpus

    by_settings: dict[bytes, Prepared] = {}
    corpora: dict[str, Prepared] = {}
    for run in runs:
        plain = freeze(run.settings)
        key = manifest.dump([plain["data"], plain["segmenter"], plain["trainer"]["init_from"]])
        if key not in by_settings:
            by_settings[key] = corpus.prepare(run.settings, run.directory)
            log_remarks(by_settings[key].facts["corpus"])
        corpora[run.name] = by_settings[key]
        outcome_of(run, corpora[run.name].facts["fingerprint"])
    return corpora


def fingerprints(corpora: Mapping[str, "Prepared"]) -> dict[str, str]:
    """What tells the corpora apart, by name of the run."""
    return {name: corpus.facts["fingerprint"] for name, corpus in corpora.items()}


def without(runs: Sequence[PlannedRun], missing: Sequence[MissingSystem]) -> list[PlannedRun]:
    """The runs that are not missing."""
    names = {run.label for run in missing}
    return [run for run in runs if run.name not in names]


def failure(missing: Sequence[MissingSystem], count: int, what: str) -> UserError:
    """The error (70) that names those of `count` runs which failed, and their logs."""
    reasons = "; ".join(f"{m.label}: {m.why}{f'; see {m.log}' if m.log else ''}" for m in missing)
    return UserError(f"{len(missing)} of {count} {what} failed: {reasons}", Exit.DIVERGED)
