"""What many runs consist of: those of an experiment such as a table, and those of nmt-train -m."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, ValueType

from nmt.errors import UserError
from nmt.overrides.arguments import Arguments, lines_of, read
from nmt.overrides.compose import (
    Experiment,
    check_scale,
    composed,
    is_sweep,
    reading_conf,
)
from nmt.overrides.keys import ROOT, check_options, is_group
from nmt.overrides.options import folders_in

ONE_RUN = read(["hydra.mode=RUN"])  # ends the overrides of each run of a sweep


class Sweep(NamedTuple):
    """Many runs."""

    name: str | None  # experiment=NAME, unless -m makes the sweep
    scale: str | None  # scale=NAME
    table: bool  # whether a report follows
    launcher: str  # hydra/launcher=NAME; basic: none was chosen
    jobs: list[list[Override]]  # those of each run; alone, they mean that run and no more
    chosen: set[str]  # keys and groups that the command line itself names

    def __str__(self) -> str:
        """The argument that makes it a sweep."""
        return "a sweep" if self.name is None else f"experiment={self.name}"


def planned(arguments: Arguments) -> Experiment | Sweep:
    """One run, or the runs of a sweep; raises UserError for what does not fit."""
    if sweep := sweep_of(arguments.overrides):
        return sweep
    if arguments.multirun:
        return multirun_of(arguments.overrides)
    return composed(arguments.overrides)


def sweep_of(overrides: list[Override]) -> Sweep | None:
    """The runs that an experiment consists of; None unless it is a sweep.

    An override of the command line takes the place of the experiment's own values for its key.
    Raises UserError for options that are not there; what else is wrong `composed` says of each run.
    """
    if not any(o.key_or_group == "experiment" and not o.is_sweep_override() for o in overrides):
        return None
    for o in overrides:
        if o.is_sweep_override() and o.key_or_group == "scale":
            raise UserError(f"{o.input_line}: one scale at a time")
    first = [o for o in overrides if not o.is_sweep_override() and _decides(o)]
    folders = folders_in(overrides)
    with reading_conf(overrides):
        check_options(first, folders)
        cfg = compose(ROOT, overrides=lines_of(first), return_hydra_config=True)
        if not is_sweep(cfg):
            return None
        check_scale(cfg)
        swept = [f"{key}={values}" for key, values in (cfg.hydra.sweeper.params or {}).items()]
        by_key = {o.get_key_element(): _values(o) for o in [*read(swept), *overrides]}
    choices = cfg.hydra.runtime.choices
    return Sweep(
        name=str(choices["experiment"]),
        scale=choices["scale"],
        table="table" in cfg,
        launcher=str(choices["hydra/launcher"]),
        jobs=[[*job, *ONE_RUN] for job in product(*by_key.values())],
        chosen={o.key_or_group for o in overrides},
    )


def _decides(override: Override) -> bool:
    """Whether an override takes part in deciding what the keys are; `run` does not yet."""
    group = override.key_or_group
    return group.startswith("hydra") or (group != "run" and is_group(group))


def _values(override: Override) -> list[Override]:
    """One override for each value of a sweep; conf/ is being read, for a glob to look there."""
    if not override.is_sweep_override():
        return [override]
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: name each value")
    located = replace(override, config_loader=GlobalHydra.instance().config_loader())
    key = override.get_key_element()
    return read(f"{key}={value}" for value in located.sweep_string_iterator())


def multirun_of(overrides: list[Override]) -> Sweep:
    """What -m asks for: one run for each value, to be checked before Hydra makes their product."""
    plain = [o for o in overrides if not o.is_sweep_override()]
    choices = [
        read(f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator())
        for o in overrides
        if o.is_sweep_override() and o.value_type is not ValueType.GLOB_CHOICE_SWEEP
    ]  # a glob finds what there is
    firsts = [values[0] for values in choices]
    jobs = [
        [*plain, *firsts[:place], value, *firsts[place + 1 :], *ONE_RUN]
        for place, values in enumerate(choices)
        for value in values
    ]
    return Sweep(
        name=None,
        scale=None,
        table=False,
        launcher="basic",
        jobs=jobs or [[*plain, *ONE_RUN]],
        chosen={o.key_or_group for o in overrides},
    )


def experiments_of(sweep: Sweep) -> list[Experiment]:
    """Each run of a sweep; raises UserError for what does not fit, and for a table inside of -m.

    Also where two would share a directory: see `check_directories`.
    """
    experiments = []
    for job in sweep.jobs:
        one = composed(job)
        if one.table is not None and one.row is None:
            chosen = next(o.input_line for o in job if o.key_or_group == "experiment")
            raise UserError(f"{chosen}: make one table at a time, each without -m")
        experiments.append(one)
    return experiments


def check_directories(experiments: Sequence[Experiment]) -> None:
    """Raise UserError if two would share a directory: that of the second would be taken."""
    by_directory: dict[Path, set[str]] = {}
    for one in experiments:
        overrides = set(one.overrides)
        other = by_directory.setdefault(one.run, overrides)
        if differing := " ".join(sorted(overrides - other)):
            raise UserError(
                f"{differing}: would share {one.run} with another run of the sweep; tell them "
                "apart by name=, which may hold ${...} of a key"
            )
