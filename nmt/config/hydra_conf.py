"""What only Hydra does: it parses overrides, multiplies sweeps and composes conf/."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from threading import RLock
from typing import Any, NamedTuple

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from nmt.config import check
from nmt.config.catalog import CHOOSERS, TITLES, conf_dir, folders_in, options_of, values_of
from nmt.config.settings import GROUPS, RunLocation, Settings
from nmt.errors import UserError

MAIN = "train"  # the main config: conf/train.yaml
DEFAULTS = "settings"  # the config with the default of each key, which conf/train.yaml names
LOCATION_KEYS = tuple(check.keys_of(RunLocation))
ENTRY_KEY = re.compile(r"encoding\.(\w+)\.(.+)")  # a key of an encoding
MODE = "hydra.mode"
_HYDRA = RLock()  # held by whoever has set Hydra's one state, GlobalHydra


class AbsentError(UserError):
    """A file of options is missing, such as the second corpus of a scale."""

    def __init__(self, message: str, option: str = "") -> None:  # pickle gives the message alone
        super().__init__(message)
        self.option = option  # as `data=toy_zhen`


def parse(words: Iterable[str]) -> list[Override]:
    """Read overrides in Hydra's grammar; UserError names the first that is none."""
    overrides, parser = [], OverridesParser.create()
    for word in words:
        name = word.partition("=")[0]
        try:
            overrides.append(parser.parse_override(word))
        except HydraException as error:
            raise UserError(
                f"{word}: not KEY=VALUE in Hydra's grammar ({first_line(error)}); quote "
                f"other text, as in \"{name}='...'\""
            ) from None
    return overrides


def lines_of(overrides: Iterable[Override]) -> list[str]:
    """Overrides as Hydra and a command line take them."""
    return [str(override.input_line) for override in overrides]


def chosen_options(override: Override) -> list[str]:
    """The options that an override of a group chooses."""
    value = override.value()
    options = value if isinstance(value, list) else [] if value is None else [value]
    return [str(option) for option in options]


def typed_options(
    typed: Mapping[str, Override], groups: Iterable[str] = TITLES
) -> list[tuple[str, str]]:
    """Groups and the options that overrides, by their groups, choose."""
    return [(g, option) for g in groups if g in typed for option in chosen_options(typed[g])]


@contextmanager
def reading_conf(overrides: Sequence[Override]) -> Iterator[None]:
    """Let Hydra's compose read conf/ in this context; its errors become UserErrors.

    Other threads wait. Hydra's former state is restored, for a program that uses Hydra itself.
    """
    with _HYDRA, translating_errors(overrides):
        outer = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            directory = str(conf_dir().resolve())
            with hydra.initialize_config_dir(version_base="1.3", config_dir=directory):
                yield
        finally:
            GlobalHydra.instance().hydra = outer


def compose(overrides: Sequence[Override]) -> DictConfig:
    """The config of overrides, without keys of encodings, with Hydra's own part."""
    lines = [str(o.input_line) for o in overrides if not ENTRY_KEY.fullmatch(o.key_or_group)]
    return hydra.compose(MAIN, overrides=lines, return_hydra_config=True)


def default_values() -> dict[str, Any]:
    """The defaults of all keys, in plain values."""
    groups = {group: check.keys_of(schema) for group, schema in GROUPS.items()}
    values: dict[str, Any] = {g: {k: v.default for k, v in ks.items()} for g, ks in groups.items()}
    values["data"]["root"] = check.MANDATORY  # null would not be overridden by the ??? of an option
    location = {name: declared.default for name, declared in check.keys_of(RunLocation).items()}
    return {"seed": check.keys_of(Settings)["seed"].default, **location, **values, "encoding": {}}


ConfigStore.instance().store(DEFAULTS, default_values())


@contextmanager
def translating_errors(overrides: Sequence[Override]) -> Iterator[None]:
    """Turn errors of Hydra and OmegaConf into a UserError of one line, with the nearest name."""
    try:
        yield
    except MissingConfigException as error:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        asking = [str(o.input_line) for o in overrides if o.key_or_group in CHOOSERS]
        by = f"{' '.join(asking)}: " if asking else ""
        message = f"{by}there is no {group}={name}{check.suggest(name, options_of(group))}"
        raise AbsentError(message, f"{group}={name}") from None
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(_message(error)) from None
    except ValueError as error:  # of Hydra, for a number instead of an option
        raise UserError(f"{' '.join(lines_of(overrides))}: {first_line(error)}") from None


def _message(error: Exception) -> str:
    text = first_line(error)
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        files = ", or name each file" if missing[1] == "data.root" else ""
        return f"{missing[1]}: has no value; give {missing[1]}=...{files}"
    if absent := re.match(r"Could not override '([^']+)'", text):
        if absent[1].startswith(("data.columns.", "data.corpora.")):
            return f"{absent[1]}: adds to what there is; write +{absent[1]}=..."
        return f"{absent[1]}: no such key{_nearest(absent[1])}"
    key = getattr(error.__cause__ or error, "full_key", None)
    return f"{key}: {text}" if key and key not in text else text


def _nearest(key: str) -> str:
    """Say which keys a misspelt one may have meant."""
    if owners := [e for e in options_of("encoding") if key in values_of("encoding", e)]:
        return f" with this encoding; these have it: {', '.join(owners)}"
    names = [
        f"{group}.{name}" for group, schema in GROUPS.items() for name in check.keys_of(schema)
    ]
    return check.suggest(key, [*names, *LOCATION_KEYS, "seed", *TITLES])


def first_line(error: Exception) -> str:
    """The first line of a message."""
    return re.sub(r"\s+", " ", (str(error).strip() or type(error).__name__).split("\n")[0])


def is_sweep(cfg: DictConfig) -> bool:
    """Whether a config, composed with Hydra's own part, is many runs."""
    mode = cfg.hydra.mode
    return mode is not None and mode.name == "MULTIRUN"


class Sweep(NamedTuple):
    """Several runs, not composed yet."""

    name: str | None  # experiment=NAME, unless -m makes the sweep
    scale: str | None  # scale=NAME
    table: bool  # whether a report follows
    launcher: str  # hydra/launcher=NAME; basic: none was chosen
    jobs: list[list[Override]]  # the overrides of each run
    chosen: set[str]  # keys and groups that the command line itself names
    globbed: bool  # whether a glob(...) names the runs: impossible ones are then left out

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
