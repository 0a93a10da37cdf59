"""The systems of a report: finished runs, those of one config together."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt import manifest, modeldir
from nmt.config import Settings, freeze, is_path, thaw
from nmt.errors import Exit, UserError
from nmt.experiments.plan import PlannedRun
from nmt.overrides.compose import Experiment
from nmt.training.directory import CONFIG
from nmt.training.run import standing

PROBLEMS = 3  # named in one error
SEEDED = re.compile(r"[-_.]?seed[-_]?\d+$")
LOOSE = (
    *("seed", "trainer.device", "trainer.threads", "trainer.log_every", "trainer.tensorboard"),
    *("trainer.keep_checkpoints", "trainer.gradient_checkpointing", "trainer.deterministic"),
    *("data.workers", "decode.batch_tokens", "decode.window"),
)  # what runs of one system may differ in, beside places; none changes what is learned or found


class SeededSystem(NamedTuple):
    """One system: finished runs of one config, which differ in their seeds alone."""

    label: str  # as the tables show it
    runs: list[PlannedRun]  # by seed; all finished
    published: str | None  # key of the published numbers, as `absolute 100`


class FinishedRun(NamedTuple):
    """One run that was named on a command line."""

    label: str | None  # as it was given
    directory: Path
    settings: Settings
    fingerprint: str  # of what it was trained on


def read_finished(
    named: Sequence[tuple[str | None, Path]], device: str = "auto"
) -> list[FinishedRun]:
    """Read what finished runs were trained with, and on; their labels may be None.

    Raises UserError (65) for those that have not ended well, or hold no run. They translate on
    `device`, wherever they were trained.
    """
    if unfinished := [why for _, path in named if (why := _unfinished(path))]:
        raise UserError(few(unfinished), Exit.DATA)
    return [_read(label, path, device) for label, path in named]


def _unfinished(directory: Path) -> str | None:
    """Why a run is not finished; None if it is."""
    try:
        reached = standing(directory)
    except UserError as error:
        return str(error)
    if reached.finished:
        return None
    return (
        f"{directory}: at step {reached.step} of {reached.last}, not finished; train it to the end"
    )


def _read(label: str | None, directory: Path, device: str) -> FinishedRun:
    where = directory / CONFIG
    try:
        settings = thaw(manifest.read(where))
    except UserError as error:
        message = str(error) if str(where) in str(error) else f"{where}: {error}"
        raise UserError(message, Exit.DATA) from None
    trainer = replace(settings.trainer, device=device)
    facts = modeldir.reading(directory, lambda model: manifest.Sealed(model).json("facts.json"))
    settings = replace(settings, trainer=trainer)
    return FinishedRun(label, directory, settings, str(facts["fingerprint"]))


def grouped(runs: Sequence[FinishedRun]) -> list[SeededSystem]:
    """Runs of one config are a system; a label starts or names one.

    A system is called by its label, or as its first run, less -seedN. Raises UserError for a run
    or seed that comes twice, and for runs of one label that are of several configs.
    """
    groups: list[list[FinishedRun]] = []
    for run in runs:
        group = next((g for g in groups if _belongs(run, g)), None)
        if group is None:
            groups.append([run])
            continue
        if twice := next((r for r in group if r.settings.seed == run.settings.seed), None):
            raise UserError(
                f"{run.directory}: the same config and seed as {twice.directory}; name one of "
                "them, or give each a LABEL="
            )
        group.append(run)
    systems = []
    for group in groups:
        group.sort(key=lambda run: run.settings.seed)
        label = next((run.label for run in group if run.label), None)
        planned = [
            PlannedRun(run.directory.resolve().name, Experiment(run.settings, run.directory))
            for run in group
        ]
        systems.append(SeededSystem(label or SEEDED.sub("", planned[0].name), planned, None))
    return systems


def _belongs(run: FinishedRun, group: Sequence[FinishedRun]) -> bool:
    """Whether a run is of the group's config; raises UserError if only its label says so."""
    same = _config(run) == _config(group[0])
    label = next((other.label for other in group if other.label), None)
    if run.label is None:
        return same
    if run.label == label and not same:
        raise UserError(
            f"{run.label}: {group[0].directory} and {run.directory} are of two configs "
            f"({_difference(group[0], run)}); give each its own LABEL="
        )
    return run.label == label


def _config(run: FinishedRun) -> dict[str, Any]:
    """All that a system's runs have in common, by dotted key."""
    values: dict[str, Any] = {"order": list(run.settings.encoding), "corpus": run.fingerprint}

    def add(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        elif prefix not in LOOSE and not is_path(prefix):
            values[prefix] = value

    add("", freeze(run.settings))
    return values


def _difference(one: FinishedRun, other: FinishedRun) -> str:
    """The first key in which two configs differ."""
    before, after = _config(one), _config(other)
    key = next(k for k in sorted({*before, *after}) if before.get(k) != after.get(k))
    return f"{key}: {before.get(key)} and {after.get(key)}"


def few(problems: list[str]) -> str:
    """The first problems in one line, and how many more there are."""
    more = f" (and {len(problems) - PROBLEMS} more)" if len(problems) > PROBLEMS else ""
    return "; ".join(problems[:PROBLEMS]) + more
