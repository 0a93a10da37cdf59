"""From overrides to the settings of one run: Hydra composes conf/, and `check` reads the result."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config import catalog, check, hydra_conf
from nmt.config.catalog import Folders
from nmt.config.settings import GROUPS, RunLocation, Settings, thaw
from nmt.errors import UserError

log = logging.getLogger(__name__)

# what a run takes from the model that it starts from, as overrides that stand before those typed;
# given the model's path, the directory of the run if it is named, what was typed, and folders
Inherit = Callable[[Path, Path | None, Sequence[Override], Folders], Iterable[str]]
START = "trainer.init_from"
SETTINGS_KEYS = ("seed", "encoding", *GROUPS)  # at the root of a composed config
SCALE_KEYS = {"limits", "bounds", "tests", "remarks"}
TABLE_KEYS = {"table", "samples", "attention"}
# further keys at the root, of encodings, experiments, scales and tables
RECIPE_KEYS = {"tau", "parent", "row", *SCALE_KEYS, *TABLE_KEYS}


class Experiment(NamedTuple):
    """What overrides ask for. Options of encodings are checked when the model is built."""

    settings: Settings
    run: Path  # the directory of the model
    overrides: Sequence[str] = ()  # that give exactly this experiment
    changed: Sequence[str] = ()  # keys of encodings that they changed, as `tau8`, `rotary.base-9`
    jobs: int | None = None  # runs at once, if it is one of several; None: as many as fit
    recipe: Mapping[str, Any] = {}  # keys of tables and recipes at the root, as `limits`, `parent`


def experiment_of(words: Iterable[str], inherit: Inherit | None = None) -> Experiment:
    """Compose, resolve and check the settings that overrides mean; UserError for wrong ones."""
    overrides = hydra_conf.parse(words)
    cfg = compose_config(overrides, inherit)
    with hydra_conf.translating_errors(overrides):
        if isinstance(cfg.data, DictConfig) and (root := cfg.data.get("root")):
            cfg.data.root = root  # resolved once, and not for each file in it
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
    if isinstance(values["data"], dict) and values["data"].get("root") == check.MANDATORY:
        values["data"]["root"] = None  # all files are named
    of_settings = {name: values.pop(name, check.MANDATORY) for name in SETTINGS_KEYS}
    of_location = {name: values.pop(name, check.MANDATORY) for name in hydra_conf.LOCATION_KEYS}
    if wrong := values.keys() - RECIPE_KEYS:
        raise UserError(f"{min(wrong)}: no such key; see --help all")
    settings, location = thaw(of_settings), check.read(RunLocation, of_location)
    changed = _changed(overrides, values.get("tau"))
    name = location.name or _name(settings, "limits" in values, changed, overrides)
    run, lines = Path(location.runs, name), hydra_conf.lines_of(overrides)
    return Experiment(settings, run, lines, changed, location.jobs, recipe=values)


def compose_config(overrides: Sequence[Override], inherit: Inherit | None = None) -> DictConfig:
    """Compose the config of one run, interpolations unresolved; UserError for wrong overrides."""
    if sweep := next((o for o in overrides if o.is_sweep_override()), None):
        raise UserError(f"{sweep.input_line}: several values; nmt-train -m makes a run of each")
    typed, folders = {o.key_or_group: o for o in overrides}, catalog.folders_in(overrides)
    _check_options(typed, folders)
    with hydra_conf.reading_conf(overrides):
        named = START in typed or "parent" in typed
        cfg = hydra_conf.compose(_leave_out_keys(overrides) if named else overrides)
        if hydra_conf.is_sweep(cfg):
            raise UserError("a sweep or a table is several runs, which only nmt-train makes")
        if inherit is not None and (start := OmegaConf.select(cfg, START)) is not None:
            words = inherit(Path(str(start)), _named_run(cfg), overrides, folders)
            cfg = hydra_conf.compose([*hydra_conf.parse(words), *overrides])
        elif named:
            cfg = hydra_conf.compose(overrides)
        with open_dict(cfg):
            del cfg["hydra"]
            _leave_out_other_entries(cfg, typed, folders)
            for override in overrides:
                _set_key_of_entry(cfg, override)
            _settle_files(cfg, typed)
            _leave_out_idle_keys(cfg, typed)
    if not cfg.get("encoding"):
        raise UserError("encoding: no entry is left; to train without positions: encoding=none")
    _warn_of_overruled(typed, folders)
    return cfg


def _leave_out_keys(overrides: Sequence[Override]) -> list[Override]:
    """Keep only overrides that need no parent: tau, say, may be a key of its encoding."""
    early = {*catalog.TITLES, *hydra_conf.LOCATION_KEYS, START, "parent", "seed"}
    return [o for o in overrides if o.key_or_group in early or o.key_or_group.startswith("hydra")]


def _named_run(cfg: DictConfig) -> Path | None:
    """Return the directory of a run if overrides name it."""
    try:
        return Path(str(cfg.runs), str(cfg.name)) if cfg.name else None
    except OmegaConfBaseException:  # a name of keys that the parent has
        return None


def _check_options(typed: Mapping[str, Override], folders: Folders) -> None:
    """Raise UserError for a missing option, and for options that Hydra would merge in silence."""
    choices: dict[str, set[str]] = {}  # of scale, experiment and run: the groups that they choose
    for group, override in typed.items():
        line = override.input_line
        if group in RECIPE_KEYS and (override.is_add() or override.is_force_add()):
            raise UserError(f"{line}: belongs to an encoding, table or recipe")
        if group not in catalog.TITLES:
            continue
        options = hydra_conf.chosen_options(override)
        if group in GROUPS and (override.is_delete() or not options):
            raise UserError(f"{line}: every run has one; choose it by {group}=...")
        if group != "encoding" and len(options) > 1:
            several = f"{group}={','.join(options)}"
            raise UserError(f"{line}: one option; for several runs: -m {several}")
        for option in options:
            catalog.chain_of(group, option, folders)
            if group in catalog.CHOOSERS:
                choices[group] = {inner for inner, _ in catalog.choices_of(group, option, folders)}
        if group == "encoding":
            _check_encodings(override, "tau" in typed, folders)
    if "run" in choices and not {"scale", "experiment"} & choices.keys():
        scales = " or ".join(f"scale={name}" for name in catalog.options_of("scale", folders))
        raise UserError(f"{typed['run'].input_line}: at which scale? add {scales}")
    if both := choices.get("scale", set()) & choices.get("experiment", set()):
        names = f"{typed['experiment'].input_line} {typed['scale'].input_line}"
        raise UserError(f"{names}: both choose {', '.join(sorted(both))}; give one of them")


def _check_encodings(override: Override, has_tau: bool, folders: Folders) -> None:
    """Raise UserError for encodings that cannot stand together in one config."""
    line, options = override.input_line, hydra_conf.chosen_options(override)
    entries = {option: catalog.entries_of(option, folders) for option in options}
    if empty := next((option for option in options if not entries[option]), None):
        raise UserError(f"encoding={empty}: its file has no entry under encoding:")
    names = [name for option in options for name in entries[option]]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{line}: {twice} is in it twice; name it once")
    taus = {str(catalog.values_of("encoding", option, folders).get("tau")) for option in options}
    if len(taus - {"None"}) > 1 and not has_tau:  # Hydra would take the last
        shared = ", ".join(sorted(taus - {"None"}))
        raise UserError(f"{line}: they share tau ({shared}); give tau=...")


def _leave_out_other_entries(
    cfg: DictConfig, typed: Mapping[str, Override], folders: Folders
) -> None:
    """Where an override chooses encodings, leave out entries that a run or experiment has added.

    Its file may set keys of the encodings that it chooses, as `encoding.absolute.at`.
    """
    if "encoding" not in typed:
        return
    options = hydra_conf.chosen_options(typed["encoding"])
    chosen = [catalog.entries_of(option, folders) for option in options]
    added = {key.removeprefix("encoding.") for key in typed}  # as encoding.NAME
    for name in {*map(str, cfg.get("encoding") or ())}.difference(added, *chosen):
        del cfg.encoding[name]


def _set_key_of_entry(cfg: DictConfig, override: Override) -> None:
    """Set encoding.NAME.KEY, which no file need have; the constructor of the encoding checks it."""
    if (entry := hydra_conf.ENTRY_KEY.fullmatch(override.key_or_group)) is None:
        return
    name, key = entry[1], entry[0]
    if name not in cfg.encoding:
        meant = check.suggest(name, map(str, cfg.encoding))
        raise UserError(f"{override.input_line}: {name} is not chosen{meant}")
    if override.is_delete():
        above, _, last = key.rpartition(".")
        if last not in (keys := OmegaConf.select(cfg, above) or {}) or not OmegaConf.is_dict(keys):
            raise UserError(f"{override.input_line}: there is no such key")
        del keys[last]
    else:
        OmegaConf.update(cfg, key, override.value(), merge=False)


def _settle_files(cfg: DictConfig, typed: Mapping[str, Override]) -> None:
    """Leave out the files that data.dev_lines replaces; UserError for files that nothing reads."""
    corpora = cfg.data.get("corpora")
    plain: Any = OmegaConf.to_container(corpora) if isinstance(corpora, DictConfig) else {}
    has_dev = any(isinstance(c, dict) and c.get("dev_source") for c in plain.values())
    unread = {"train": "corpora"} if plain else {}
    if cfg.data.get("dev_lines"):
        unread["dev"] = "dev_lines"
        cfg.data.dev_source = cfg.data.dev_target = None
    elif has_dev:
        unread["dev"] = "corpora"
    for part, key in unread.items():
        for name in (f"data.{part}_source", f"data.{part}_target"):
            if name in typed:
                line = typed[name].input_line
                raise UserError(f"{line}: not read with data.{key}; leave one of the two out")


def _leave_out_idle_keys(cfg: DictConfig, typed: Mapping[str, Override]) -> None:
    """Leave out keys that do not count with a group's kind; UserError for one that was typed."""
    for group, schema in GROUPS.items():
        if not isinstance(cfg[group], DictConfig):
            continue  # which is refused when it is read
        kind = cfg[group].get("kind")
        for name in check.idle_keys(schema, kind) & {*map(str, cfg[group])}:
            if f"{group}.{name}" in typed:
                kinds = " or ".join(check.keys_of(schema)[name].only)
                idle = f"{group}.{name}: has no effect with {group}.kind={kind}"
                raise UserError(f"{idle}; only with {kinds}")
            del cfg[group][name]


def _warn_of_overruled(typed: Mapping[str, Override], folders: Folders) -> None:
    """Say where an experiment, scale or run sets a key otherwise than an option that was typed."""
    options = hydra_conf.typed_options(typed, ("model", "optim", "trainer", "decode"))
    choosers = hydra_conf.typed_options(typed, catalog.CHOOSERS)
    for (group, option), chooser in product(options, choosers):
        if (group, option) in catalog.choices_of(*chooser, folders):
            continue  # its own choice, of which it changes some keys
        means = catalog.values_of(group, option, folders)
        if option == catalog.default_options()[group]:  # which changes no default
            idle = check.idle_keys(GROUPS[group], means.get("kind"))
            defaults = hydra_conf.default_values()[group].items()
            means = {key: value for key, value in defaults if key not in idle} | means
        sets = catalog.values_of(*chooser, folders).get(group, {})
        overruled = [
            f"{group}.{key}={value}"
            for key, value in sets.items()
            if means.get(key, value) != value and f"{group}.{key}" not in typed
        ]
        if overruled:
            message = f"{group}={option}: {'='.join(chooser)} sets {', '.join(overruled)}"
            _warn(f"{message}; to change a key, give it")


@cache
def _warn(message: str) -> None:
    """Log a warning once for all runs of a sweep."""
    log.warning("%s", message)


def _changed(overrides: Sequence[Override], tau: Any) -> list[str]:
    """List the keys of encodings that overrides change, as parts of a name."""
    changed = [f"tau{tau}"] if any(o.key_or_group == "tau" for o in overrides) else []
    for override in overrides:
        if override.key_or_group.startswith("encoding."):
            value = str(override.input_line).partition("=")[2]
            words = "+".join(re.findall(r"(?:(?<!\w)-)?[\w.]+", value))  # a minus, no hyphen
            changed.append(f"{override.key_or_group.removeprefix('encoding.')}-{words}")
    return changed


def _name(
    settings: Settings, at_scale: bool, changed: Iterable[str], overrides: Sequence[Override]
) -> str:
    """Name a run data/encoding-key-seed, for example toy/relative-tau8-seed1.

    Files without a data.name go by the name of their directory, so that corpora have runs apart.
    At one of the scales: table-data/encoding-limit-key-seed, so that the tables share runs.
    """
    label = " ".join(settings.encoding)
    for override in overrides:
        if override.key_or_group == "encoding" and override.type is OverrideType.CHANGE:
            label = str(override.input_line).partition("=")[2]
    label = "+".join(re.findall(r"\w+", label)) or "none"
    data = settings.data
    corpus = data.name
    if data.name == "files" and (data.root or not data.corpora):
        root = Path(data.train_source).parent if data.root is None else Path(data.root)
        corpus = re.sub(r"[^\w.-]+", "_", root.resolve().name) or data.name
    name = f"{corpus}/{label}"
    if at_scale:
        name = f"table-{name}-max{data.max_length}"
    return "-".join([name, *changed, f"seed{settings.seed}"])
