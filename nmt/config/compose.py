"""From overrides to the settings of one run: Hydra composes conf/, and `check` reads the result."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config import check
from nmt.config.catalog import (
    ABOUT,
    CHOOSERS,
    Folders,
    chain_of,
    chosen_by,
    default_options,
    entries_of,
    folders_in,
    options_of,
    values_of,
)
from nmt.config.hydra_conf import (
    ENTRY,
    PLACE,
    chosen_options,
    compose,
    lines_of,
    of_groups,
    parse,
    reading_conf,
    translating_errors,
)
from nmt.config.inherit import START, ReadParent, compose_from
from nmt.config.settings import GROUPS, Place, Settings, thaw
from nmt.errors import UserError

log = logging.getLogger(__name__)
_BARE = str.maketrans("", "", "[] ")

OWN = ("seed", "encoding", *GROUPS)  # keys of a composed config that make up the settings
OTHERS = {  # keys at the root that encodings, tables and recipes have
    *("tau", "limits", "bounds", "tests", "remarks", "table", "samples", "attention"),
    *("row", "parent"),
}


class Experiment(NamedTuple):
    """All that overrides ask for, resolved and checked."""

    settings: Settings
    run: Path  # the directory of the model
    overrides: Sequence[str] = ()  # alone, they mean this experiment and no more
    changed: Sequence[str] = ()  # keys of encodings that they changed, as `tau8`, `rotary.base-9`
    jobs: int | None = None  # runs at once, if it is one of several; None: as many as fit
    others: Mapping[str, Any] = {}  # keys of tables and recipes at the root, as `limits`, `parent`


def experiment_of(words: Iterable[str], read_parent: ReadParent | None = None) -> Experiment:
    """Compose, resolve and check what overrides ask for; UserError for what does not fit.

    `read_parent` reads the model that trainer.init_from names, whose encoding, model, segmenter and
    text the run then has, unless they are chosen.
    """
    overrides = parse(words)
    cfg = composed(overrides, read_parent)
    with translating_errors(overrides):
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
    others = {name: value for name, value in values.items() if name not in (*OWN, *PLACE)}
    if wrong := others.keys() - OTHERS:
        raise UserError(f"{min(wrong)}: no such key; see --help all")
    settings = thaw({name: values[name] for name in OWN})
    place = check.read(Place, {name: values[name] for name in PLACE})
    changed = _changed(overrides, others)
    name = place.name or _name(settings, "limits" in others, changed, overrides)
    run, lines = Path(place.runs, name), lines_of(overrides)
    return Experiment(settings, run, lines, changed, place.jobs, others)


def composed(overrides: Sequence[Override], read_parent: ReadParent | None = None) -> DictConfig:
    """The config of one run, interpolations unresolved; raises as `experiment_of`."""
    if sweep := next((o for o in overrides if o.is_sweep_override()), None):
        raise UserError(f"{sweep.input_line}: several values; nmt-train -m makes a run of each")
    typed, folders = {o.key_or_group: o for o in overrides}, folders_in([*overrides])
    check_options(overrides, folders)
    _check_scale(typed, folders)
    with reading_conf(overrides):
        named = START in typed or "parent" in typed
        # keys of the parent's encoding, such as tau, are not there yet
        cfg = compose(of_groups(overrides, START, "parent", "seed", *PLACE) if named else overrides)
        if is_sweep(cfg):
            raise UserError(
                "several runs, of a sweep or a table: only nmt-train makes them; choose one"
            )
        if read_parent is not None and (start := OmegaConf.select(cfg, START)) is not None:
            parent = read_parent(path := Path(str(start)), _named_run(cfg))
            cfg = compose_from(parent, path, overrides)
        elif named:
            cfg = compose(overrides)
        with open_dict(cfg):
            del cfg["hydra"]
            _leave_out_other_entries(cfg, typed, folders)
            for override in overrides:
                _set_key_of_entry(cfg, override)
            _settle_files(cfg, typed)
            _leave_out_idle_keys(cfg, typed, folders)
    if not cfg.encoding:
        raise UserError("encoding: no entry is left; to train without positions: encoding=none")
    _warn_of_overruled(typed, folders)
    return cfg


def is_sweep(cfg: DictConfig) -> bool:
    """Whether a config, composed with Hydra's own part, is many runs."""
    mode = cfg.hydra.mode
    return mode is not None and mode.name == "MULTIRUN"


def _named_run(cfg: DictConfig) -> Path | None:
    """The directory of a run that overrides name, if they do."""
    try:
        return Path(str(cfg.runs), str(cfg.name)) if cfg.name else None
    except OmegaConfBaseException:  # a name of keys that the parent has
        return None


def _set_key_of_entry(cfg: DictConfig, override: Override) -> None:
    """Set encoding.NAME.KEY, which no file need have; the constructor of the encoding checks it."""
    if (entry := ENTRY.fullmatch(override.key_or_group)) is None:
        return
    name, key = entry[1], entry[0]
    if name not in cfg.encoding:
        meant = check.near(name, map(str, cfg.encoding))
        raise UserError(f"{override.input_line}: {name} is not chosen{meant}")
    if override.is_delete():
        above, _, last = key.rpartition(".")
        if last not in (keys := OmegaConf.select(cfg, above) or {}) or not OmegaConf.is_dict(keys):
            raise UserError(f"{override.input_line}: there is no such key")
        del keys[last]
    else:
        OmegaConf.update(cfg, key, override.value(), merge=False)


def check_options(overrides: Sequence[Override], folders: Folders) -> None:
    """Raise UserError for an option that is not there, or has an entry that another one has."""
    typed = {override.key_or_group for override in overrides}
    for override in overrides:
        group = override.key_or_group
        if override.is_delete() and group in (*OWN, *PLACE):
            raise UserError(f"{override.input_line}: every run has one; choose it by {group}=...")
        if group in OTHERS and (override.is_add() or override.is_force_add()):
            raise UserError(f"{override.input_line}: belongs to an encoding, table or recipe")
        if not override.is_sweep_override() and override.value() == check.OPEN:
            raise UserError(f"{group}: has no value; give {group}=...")
        if group not in ABOUT or override.is_sweep_override():
            continue
        if group != "encoding" and isinstance(override.value(), list):
            name = override.input_line
            raise UserError(
                f"{name}: one option; for several runs: -m {str(name).translate(_BARE)}"
            )
        if not override.is_delete() and not chosen_options(override):
            raise UserError(f"{override.input_line}: name an option, or leave {group} out")
        for option in chosen_options(override):
            chain_of(group, option, folders)
        if group != "encoding":
            continue
        entries = {option: entries_of(option, folders) for option in chosen_options(override)}
        if empty := next((option for option, found in entries.items() if not found), None):
            raise UserError(f"encoding={empty}: its file has no entry under encoding:")
        names = [name for option in chosen_options(override) for name in entries[option]]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise UserError(f"{override.input_line}: {twice} is in it twice; name it once")
        taus = {str(values_of(group, option, folders).get("tau")) for option in entries} - {"None"}
        if len(taus) > 1 and "tau" not in typed:  # Hydra would take the last
            shared = ", ".join(sorted(taus))
            raise UserError(f"{override.input_line}: they share tau ({shared}); give tau=...")


def _check_scale(typed: Mapping[str, Override], folders: Folders) -> None:
    """Raise UserError for a run without a scale, and for two that choose the same."""
    groups = {
        group: {
            inner for o in chosen_options(typed[group]) for inner, _ in chosen_by(group, o, folders)
        }
        for group in CHOOSERS
        if group in typed
    }
    if "run" in groups and not {"scale", "experiment"} & groups.keys():
        scales = " or ".join(f"scale={name}" for name in options_of("scale", folders))
        raise UserError(f"{typed['run'].input_line}: at which scale? add {scales}")
    if both := sorted(groups.get("scale", set()) & groups.get("experiment", set())):
        names = f"{typed['experiment'].input_line} {typed['scale'].input_line}"
        raise UserError(f"{names}: both choose {', '.join(both)}; give one of them")


def _leave_out_other_entries(
    cfg: DictConfig, typed: Mapping[str, Override], folders: Folders
) -> None:
    """Where an override chooses encodings, leave out entries that a run or experiment has besides.

    Such a file changes keys of the entries that it chose, as `encoding.absolute.at`.
    """
    if "encoding" not in typed:
        return
    chosen = [entries_of(option, folders) for option in chosen_options(typed["encoding"])]
    added = {key.removeprefix("encoding.") for key in typed if not ENTRY.fullmatch(key)}
    for name in {*map(str, cfg.get("encoding") or ())}.difference(added, *chosen):
        del cfg.encoding[name]


def _settle_files(cfg: DictConfig, typed: Mapping[str, Override]) -> None:
    """Leave out the files that data.dev_lines replaces; UserError for files that nothing reads."""
    data, corpora = cfg.data, cfg.data.get("corpora")
    has_dev = isinstance(corpora, DictConfig) and any(
        isinstance(corpus, DictConfig) and corpus.get("dev_source") for corpus in corpora.values()
    )
    for replaced, key, part in (
        (data.get("dev_lines"), "dev_lines", "dev"),
        (corpora, "corpora", "train"),
        (has_dev, "corpora", "dev"),
    ):
        files = [typed.get(f"data.{part}_{side}") for side in ("source", "target")]
        if replaced and (named := next(filter(None, files), None)):
            line = named.input_line
            raise UserError(f"{line}: not read with data.{key}; leave one of the two out")
    if data.get("dev_lines"):
        data.dev_source = data.dev_target = None


def _leave_out_idle_keys(cfg: DictConfig, typed: Mapping[str, Override], folders: Folders) -> None:
    """Leave out keys that do not count with a group's kind.

    Raises UserError for one that was typed or that the file of a typed option sets, and where none
    was typed, for one that an experiment, scale or run sets.
    """
    for group, schema in GROUPS.items():
        if not isinstance(cfg[group], DictConfig) or "kind" not in cfg[group]:
            continue
        options = chosen_options(typed[group]) if group in typed else []
        own = {name for option in options for name in values_of(group, option, folders)}
        kind = cfg[group].kind
        for name in sorted(check.idle_keys(schema, kind) & {*map(str, cfg[group])}):
            default = check.keys_of(schema)[name].default
            set_by_file = name in own if options else cfg[group].get(name, default) != default
            if (key := f"{group}.{name}") in typed or set_by_file:
                kinds = schema.__dataclass_fields__[name].metadata["only"]
                options = [o for o in options_of(group, folders)
                           if values_of(group, o, folders).get("kind") in kinds]  # fmt: skip
                give = " or ".join(f"{group}={option}" for option in options)
                raise UserError(f"{key}: has no effect with {group}.kind={kind}; give {give}")
            del cfg[group][name]


def _warn_of_overruled(typed: Mapping[str, Override], folders: Folders) -> None:
    """Say where an experiment, scale or run sets a key otherwise than an option that was typed."""
    choosers = [(g, o) for g in CHOOSERS if g in typed for o in chosen_options(typed[g])]
    for group in ("model", "optim", "trainer", "decode"):
        for option in chosen_options(typed[group]) if group in typed else ():
            means = values_of(group, option, folders)
            if option == default_options()[group]:  # which changes nothing
                schema = GROUPS[group]
                idle = check.idle_keys(schema, means.get("kind"))
                keys = check.keys_of(schema).items()
                means = {k: declared.default for k, declared in keys if k not in idle} | means
            for chooser, chosen in choosers:
                if (group, option) in chosen_by(chooser, chosen, folders):
                    continue  # its own choice, of which it changes some keys
                sets = values_of(chooser, chosen, folders).get(group, {})
                overruled = [
                    f"{group}.{key}={value}"
                    for key, value in sets.items()
                    if means.get(key, value) != value and f"{group}.{key}" not in typed
                ]
                if overruled:
                    said = f"{group}={option}: {chooser}={chosen} sets {', '.join(overruled)}"
                    _warn(f"{said}; to change a key, give it")


@cache
def _warn(message: str) -> None:
    """Once for all runs of a sweep."""
    log.warning("%s", message)


def _changed(overrides: Sequence[Override], others: Mapping[str, Any]) -> list[str]:
    """Keys of encodings that overrides change, as parts of a name."""
    typed = {override.key_or_group for override in overrides}
    changed = [f"tau{others['tau']}"] if "tau" in typed else []
    for override in overrides:
        if override.key_or_group.startswith("encoding."):
            value = str(override.input_line).partition("=")[2]
            words = "+".join(re.findall(r"(?:(?<!\w)-)?[\w.]+", value))  # a minus, no hyphen
            changed.append(f"{override.key_or_group.removeprefix('encoding.')}-{words}")
    return changed


def _name(
    settings: Settings, at_scale: bool, changed: Iterable[str], overrides: Sequence[Override]
) -> str:
    """data/encoding-knob-seed, for example toy/relative-tau8-seed1.

    Files without a data.name go by the name of their directory, so that corpora have runs apart.
    At one of the scales: table-data/encoding-limit-knob-seed, so that the tables share runs.
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
    place = f"{corpus}/{label}"
    if at_scale:
        place = f"table-{place}-max{data.max_length}"
    return "-".join([place, *changed, f"seed{settings.seed}"])
