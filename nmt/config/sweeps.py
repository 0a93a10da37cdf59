"""Which runs a command line means, if several: nmt-train -m, or an experiment such as a table."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, ValueType

from nmt.config.catalog import folders_in
from nmt.config.compose import is_sweep
from nmt.config.hydra_conf import compose, parse, reading_conf
from nmt.errors import UserError

MODE = "hydra.mode"


class Sweep(NamedTuple):
    """Several runs, not composed yet."""

    name: str | None  # experiment=NAME, unless -m makes the sweep
    scale: str | None  # scale=NAME
    table: bool  # whether a report follows
    launcher: str  # hydra/launcher=NAME; basic: none was chosen
    jobs: list[list[Override]]  # those of each run; alone, they mean that run and no more
    chosen: set[str]  # keys and groups that the command line itself names
    globbed: bool  # whether a glob(...) names the runs, so that those that cannot be are left out

    def __str__(self) -> str:
        """The argument that makes it a sweep."""
        return "a sweep" if self.name is None else f"experiment={self.name}"


def sweep_of(overrides: list[Override], multirun: bool = False) -> Sweep | None:
    """Return all combinations of values (-m), or the runs of an experiment; None for a single run.

    An override of the command line replaces the experiment's own values for its key.
    Raises UserError for options that do not exist; composing a run refuses what else is wrong.
    """
    single = [o for o in overrides if not o.is_sweep_override()]
    first = [o for o in single if o.key_or_group.startswith(("hydra", "experiment", "scale"))]
    if not multirun and not any(o.key_or_group == "experiment" for o in first):
        return None
    folders_in(overrides)  # refuses what Hydra would read otherwise
    with reading_conf(overrides):
        cfg = compose(first)
        if not multirun and not is_sweep(cfg):
            return None
        swept = [f"{key}={values}" for key, values in (cfg.hydra.sweeper.params or {}).items()]
        by_key = {o.get_key_element(): _values(o) for o in [*parse(swept), *overrides]}
        by_key[MODE] = parse([f"{MODE}=RUN"])
    choices = cfg.hydra.runtime.choices
    if "table" in cfg and len(by_key.get("scale", ())) > 1:
        raise UserError("scale=: a table is of one scale at a time")
    return Sweep(
        name=choices["experiment"] if is_sweep(cfg) else None,
        scale=choices["scale"],
        table="table" in cfg,
        launcher=str(choices["hydra/launcher"]),
        jobs=[list(job) for job in product(*by_key.values())],
        chosen={o.key_or_group for o in overrides},
        globbed=any(o.value_type is ValueType.GLOB_CHOICE_SWEEP for o in overrides),
    )


def _values(override: Override) -> list[Override]:
    """One override for each value of a sweep; conf/ is being read, for a glob to look there."""
    if not override.is_sweep_override():
        return [override]
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: name each value")
    located = replace(override, config_loader=GlobalHydra.instance().config_loader())
    key = override.get_key_element()
    if values := parse(f"{key}={value}" for value in located.sweep_string_iterator()):
        return values
    raise UserError(f"{override.input_line}: there is no such option")
