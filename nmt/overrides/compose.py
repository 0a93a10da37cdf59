"""From overrides to one Experiment: composed by Hydra, resolved, checked, and named."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config import KINDS, Settings, conf_dir, thaw
from nmt.errors import UserError
from nmt.overrides.arguments import lines_of, parse
from nmt.overrides.keys import ROOT, RUN, SETTINGS, check, check_keys
from nmt.overrides.options import (
    Folders,
    chosen_options,
    default_options,
    defaults_of,
    entries_of,
    folders_in,
    options_of,
    values_of,
)
from nmt.overrides.parent import (
    START,
    inherit,
    parent_of,
    refuse_keys_of_encoding,
    set_corpus,
    start_in,
    with_corpus,
)
from nmt.overrides.tables import RunKeys, TableReport, TableScale
from nmt.schema import keys_in, read

log = logging.getLogger(__name__)

T = TypeVar("T")
Typed = Mapping[str, Override]  # the overrides of one run, by key or group
_ENTRIES = "encoding."  # what keys of the entries of encodings begin with
_CONFIG_GROUPS = ("run", "scale", "experiment")  # that decide on several others
OF_TABLES = {*keys_in(TableScale), *keys_in(TableReport), "row", "parent"}  # at the root


class Experiment(NamedTuple):
    """All that the overrides of nmt-train or nmt-prepare ask for, resolved and checked."""

    settings: Settings
    run: Path  # the directory of the model
    overrides: Sequence[str] = ()  # alone, they mean this experiment and no more
    changed: Sequence[str] = ()  # keys of encodings that they changed, as `tau8`, `rotary.base-9`
    scale: TableScale | None = None  # scale=NAME
    table: TableReport | None = None  # experiment=table1 ... table4
    row: str | None = None  # run=NAME: its row in the paper's tables, as `absolute 100`
    jobs: int | None = None  # runs at once, if it is one of several; None: as many as fit
    parent: Path | None = None  # experiment=lengthen: the model that the run continues from
    elsewhere: str = "name="  # the option that names another directory, for errors about this one


class AbsentError(UserError):
    """An option of a group is missing, such as the second corpus of a scale."""

    def __init__(self, message: str, option: str = "") -> None:  # pickle gives the message alone
        super().__init__(message)
        self.option = option  # as `data=toy_zhen`


def experiment_of(words: Iterable[str]) -> Experiment:
    """The experiment of typed overrides; raises the errors of `parse` and `composed`."""
    return composed(parse(words))


def composed(overrides: list[Override]) -> Experiment:
    """Compose, resolve and check; raises UserError for a sweep, and for what does not fit."""
    cfg = _settled(overrides)
    values = _resolved(cfg)
    scale = _part(TableScale, values, "limits")  # before what its keys set, for errors to name them
    table = _part(TableReport, values, "table")
    settings = thaw({key: values[key] for key in SETTINGS if key in values})
    knobs = set(values) - {*SETTINGS, *RUN, *OF_TABLES}  # keys of encodings
    changed = [
        f"{key}{values[key]}"
        for key in sorted({override.key_or_group for override in overrides} & knobs)
    ] + _changed_entries(overrides)
    place = read(RunKeys, {key: values[key] for key in RUN})
    name = place.name or _default_name(settings, scale is not None, changed, overrides)
    return Experiment(
        settings,
        run=Path(place.runs) / name,
        overrides=lines_of(overrides),
        changed=changed,
        scale=scale,
        table=table,
        row=None if values.get("row") is None else str(values["row"]),
        jobs=place.jobs,
        parent=None if values.get("parent") is None else Path(str(values["parent"])),
    )


def shown(overrides: list[Override], resolve: bool) -> str:
    """The config that a run is trained with, as YAML; raises UserError as `composed` does."""
    cfg = _settled(overrides)
    try:
        return OmegaConf.to_yaml(cfg, resolve=resolve)
    except OmegaConfBaseException as e:
        raise UserError(_first_line(e)) from None


def _settled(overrides: list[Override]) -> DictConfig:
    """The config of one run, with what it takes over from its parent."""
    cfg = checked_config(overrides)
    if is_sweep(cfg):
        raise UserError(
            "several runs, of a sweep or a table: only nmt-train makes them; choose one"
        )
    with open_dict(cfg):
        del cfg["hydra"]
    typed, folders = {o.key_or_group: o for o in overrides}, folders_in(overrides)
    _replace_positions(cfg, typed)
    _leave_out_other_entries(cfg, typed, folders)
    _warn_of_overruled(typed, folders)
    if (start := _resolved(cfg, START)) is not None:
        parent = parent_of(Path(str(start)), overrides)
        set_corpus(cfg, parent, overrides, folders)
        inherit(cfg, parent.settings, overrides, folders)
    _settle_files(cfg, typed)
    _leave_out_keys_of_other_kinds(cfg, typed, folders)
    return cfg


def checked_config(overrides: list[Override]) -> DictConfig:
    """The config of overrides that fit together, with Hydra's own part; else UserError."""
    for o in overrides:
        if o.is_sweep_override():
            raise UserError(f"{o.input_line}: several values; nmt-train -m makes a run of each")
    folders = folders_in(overrides)
    if (start := start_in(overrides)) is not None:
        parent = parent_of(start, overrides)
        refuse_keys_of_encoding(parent.settings, overrides, folders)
        overrides = with_corpus(overrides, folders, parent)
    with reading_conf(overrides):
        check(overrides, folders)
        try:
            cfg = compose(ROOT, overrides=lines_of(overrides), return_hydra_config=True)
        except (HydraException, OmegaConfBaseException):
            check_keys(overrides, folders)  # names the nearest key
            raise
    check_scale(cfg)
    return cfg


_POSITIONS = re.compile(r"encoding\.\w+\.at")


def _replace_positions(cfg: DictConfig, typed: Typed) -> None:
    """Let an override of encoding.NAME.at replace the file's value, into which Hydra merges it."""
    for key, override in typed.items():
        if _POSITIONS.fullmatch(key) and isinstance(value := override.value(), dict):
            at = OmegaConf.select(cfg, key)
            with open_dict(cfg):
                for name in {*at} - {*value}:
                    del at[name]


def _settle_files(cfg: DictConfig, typed: Typed) -> None:
    """Leave out the files that data.dev_lines replaces; UserError for files that nothing reads."""
    corpora = OmegaConf.select(cfg, "data.corpora", default={})
    dev = isinstance(corpora, DictConfig) and any(
        isinstance(corpus, DictConfig) and corpus.get("dev_source") for corpus in corpora.values()
    )
    held_out = cfg.data.get("dev_lines")
    for replaced, key, part in (
        (held_out, "dev_lines", "dev"),
        (corpora, "corpora", "train"),
        (dev, "corpora", "dev"),
    ):
        files = (f"data.{part}_source", f"data.{part}_target")
        if not replaced:
            continue
        if named := next((typed[file] for file in files if file in typed), None):
            line = named.input_line
            raise UserError(f"{line}: not read with data.{key}; leave one of the two out")
        if key == "dev_lines":
            cfg.data.dev_source = cfg.data.dev_target = None


def _leave_out_other_entries(cfg: DictConfig, typed: Typed, folders: Folders) -> None:
    """Where an override chooses encodings, leave out entries that a run or experiment has besides.

    Such a file changes keys of the entries that it chose, as `encoding.absolute.at`.
    """
    if "encoding" not in typed:
        return
    chosen = [entries_of(option, folders) for option in chosen_options(typed["encoding"])]
    added = {key.removeprefix(_ENTRIES) for key in typed}  # whole, or a key within
    for name in {*map(str, cfg.get("encoding") or ())}.difference(added, *chosen):
        if key := next((k for k in typed if k.startswith(f"{_ENTRIES}{name}.")), None):
            raise UserError(f"{key}: {name} is not chosen; name it in encoding=")
        with open_dict(cfg):
            del cfg.encoding[name]


def _warn_of_overruled(typed: Typed, folders: Folders) -> None:
    """Say where an experiment, scale or run sets a key otherwise than an option that was typed."""
    choices, others = (
        [(group, o) for group in groups if group in typed for o in chosen_options(typed[group])]
        for groups in (_CONFIG_GROUPS, ("model", "optim", "trainer", "decode"))
    )
    for (chooser, chosen), (group, option) in product(choices, others):
        if (group, option) in defaults_of(chooser, chosen, folders):
            continue  # its own choice, of which it changes some keys
        default = str(default_options()[group])
        usual = {} if option == default else values_of(group, default)
        means = {k: v for k, v in values_of(group, option, folders).items() if usual.get(k) != v}
        sets = values_of(chooser, chosen, folders).get(group, {})
        other = {f"{group}.{k}": v for k, v in sets.items() if means.get(k, v) != v}
        if overruled := [f"{key}={v}" for key, v in other.items() if key not in typed]:
            said = f"{group}={option}: {chooser}={chosen} sets {', '.join(overruled)}"
            _warn(f"{said}; to change a key, give it")


@cache
def _warn(message: str) -> None:
    """Once for all runs of a sweep."""
    log.warning("%s", message)


def _leave_out_keys_of_other_kinds(cfg: DictConfig, typed: Typed, folders: Folders) -> None:
    """Where an override chooses a kind, leave out what an experiment or scale sets for another.

    What the files of the chosen options themselves set stays, and is refused where it is wrong.
    """
    for group, kinds in KINDS.items():
        if group not in typed or group not in cfg:
            continue
        schema = kinds.get(str(cfg[group].get("kind")))
        if schema is None:
            continue
        others = {key for other in kinds.values() for key in keys_in(other)} - {*keys_in(schema)}
        for option in chosen_options(typed[group]):
            others -= {*values_of(group, option, folders)}
        with open_dict(cfg):
            for key in others & {*map(str, cfg[group])}:
                if not any(f"{o}.".startswith(f"{group}.{key}.") for o in typed):
                    del cfg[group][key]


def _part(schema: type[T], values: dict[str, Any], mark: str) -> T | None:
    """The keys of a scale or table at the root of a config; None if its first key is not there."""
    if mark not in values:
        return None
    return read(schema, {key: values[key] for key in keys_in(schema) if key in values})


def _resolved(cfg: DictConfig, key: str | None = None) -> Any:
    """A composed config, or one key, as plain values; UserError for what refers to nothing."""
    try:
        if key is not None:
            return OmegaConf.select(cfg, key)
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as e:
        raise UserError(_first_line(e)) from None
    return values


def _default_name(
    settings: Settings, at_scale: bool, changed: list[str], overrides: Sequence[Override]
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


def _changed_entries(overrides: Sequence[Override]) -> list[str]:
    """Keys of an entry with values: encoding.rotary.layers=[0,2] is rotary.layers-0+2."""
    changed = []
    for override in overrides:
        if override.key_or_group.startswith(_ENTRIES):
            _, _, value = str(override.input_line).partition("=")
            words = "+".join(re.findall(r"(?:(?<!\w)-)?[\w.]+", value))  # a minus, no hyphen
            changed.append(f"{override.key_or_group.removeprefix(_ENTRIES)}-{words}")
    return changed


_HYDRA = RLock()  # held by whoever has set Hydra's one state, GlobalHydra


@contextmanager
def reading_conf(overrides: Sequence[Override]) -> Iterator[None]:
    """Let Hydra's compose read conf/; its complaints become UserErrors.

    Other threads wait, and an application that is a program of Hydra has its own back afterwards.
    """
    with _HYDRA:
        outer = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir().resolve())):
                yield
        except MissingConfigException as e:
            option = str(e.missing_cfg_file).replace("/", "=")
            raise AbsentError(_absent(e, option, lines_of(overrides)), option) from None
        except (HydraException, OmegaConfBaseException) as e:
            raise UserError(_first_line(e)) from None
        finally:
            GlobalHydra.instance().hydra = outer


def is_sweep(cfg: DictConfig) -> bool:
    """Whether a config, composed with Hydra's own part, is many runs."""
    mode = cfg.hydra.mode
    return mode is not None and mode.name == "MULTIRUN"


def check_scale(cfg: DictConfig) -> None:
    """Raise UserError for a run or table without scale, and a scale where it means nothing."""
    chosen = {group: cfg.hydra.runtime.choices.get(group) for group in _CONFIG_GROUPS}
    run, scale, experiment = (chosen[group] for group in _CONFIG_GROUPS)
    if scale is None and (run is not None or "table" in cfg):
        what = f"run={run}" if run is not None else f"experiment={experiment}"
        raise UserError(f"{what}: {_which_scale()}")
    ours = (conf_dir() / "experiment" / f"{experiment}.yaml").exists()
    if scale is not None and ours and "table" not in cfg:
        raise UserError(
            f"experiment={experiment} scale={scale}: both choose corpus, model and budget; "
            "give one of them"
        )


def _which_scale() -> str:
    return f"at which scale? add {' or '.join(f'scale={name}' for name in options_of('scale'))}"


def _absent(e: MissingConfigException, option: str, lines: list[str]) -> str:
    """Which option is missing, and which overrides need it if they do not name it."""
    asking = [line for line in lines if line.partition("=")[0] in _CONFIG_GROUPS]
    if not asking or option in lines:
        return _first_line(e)
    if option.startswith("data=None"):  # composed of the scale's name
        return f"{' '.join(asking)}: {_which_scale()}"
    return f"{' '.join(asking)}: there is no {option}; choose another run or scale"


def _first_line(e: Exception) -> str:
    text = str(e).strip() or type(e).__name__
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        files = ", or name each file" if missing[1] == "data.root" else ""
        return f"{missing[1]}: has no value; give {missing[1]}=...{files}"
    return re.sub(r"\s+", " ", text.split("\n")[0])
