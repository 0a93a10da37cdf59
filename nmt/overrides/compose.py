"""From the words of a command line to Settings, with errors that name the nearest right word."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config import KINDS, Files, Settings, TableReport, TableScale, conf_dir, thaw
from nmt.errors import UserError
from nmt.overrides.options import SEARCHPATH, Folders, entries_of, folders_of, knobs_of, options_of
from nmt.overrides.quoting import split, unreadable
from nmt.schema import keys_in, read

PLAIN = ("seed", "encoding", *KINDS)  # what of the composed config an experiment consists of
T = TypeVar("T")
OF_TABLES = {*keys_in(TableScale), *keys_in(TableReport), "row"}  # at the root beside PLAIN


class Experiment(NamedTuple):
    """All that the overrides of nmt-train or nmt-prepare ask for, resolved and checked."""

    settings: Settings
    run: Path  # the directory of the model
    overrides: Sequence[str] = ()  # alone, they mean this experiment and no more
    changed: Sequence[str] = ()  # keys of encodings that they changed, with values, as `tau8`
    scale: TableScale | None = None  # scale=NAME
    table: TableReport | None = None  # experiment=table1 ... table4
    row: str | None = None  # run=NAME: its row in the paper's tables, as `absolute 100`
    elsewhere: str = "name="  # the option that names another directory, for errors about this one


class Sweep(NamedTuple):
    """An experiment that is many runs, such as a table of the paper."""

    name: str  # experiment=NAME
    scale: str | None  # scale=NAME
    table: bool  # whether a report follows
    launcher: str  # hydra/launcher=NAME; basic: none was chosen
    jobs: list[list[str]]  # the words of each run; alone, they mean that run and no more
    chosen: set[str]  # keys and groups that the command line itself names


class AbsentError(UserError):
    """An option of a group is missing, such as the second corpus of a scale."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option  # as `data=toy_zhen`


def experiment_of(words: list[str]) -> Experiment:
    """What the words ask for; raises UserError for flags, sweeps and words that do not fit."""
    flags, overrides = split(words)
    if flags:
        raise UserError(f"{flags[0]}: no such option; see --help")
    cfg, sweep = composed(overrides)
    if sweep:
        raise UserError("a sweep: only nmt-train takes several values for a key")
    return experiment(cfg, overrides)


def experiment(cfg: DictConfig, overrides: list[str]) -> Experiment:
    """Resolve and check a composed config; raises UserError for the first wrong value."""
    values = _resolved(cfg)
    scale = _part(TableScale, values, "limits")
    table = _part(TableReport, values, "table")
    settings = thaw({k: values[k] for k in PLAIN})
    changed = _changed(values, overrides)
    name = values["name"] or _default_name(settings, scale is not None, changed, overrides)
    row = None if values.get("row") is None else str(values["row"])
    run = Path(str(values["runs"])) / str(name)
    return Experiment(settings, run, overrides, changed, scale, table, row)


def _part(schema: type[T], values: dict[str, Any], mark: str) -> T | None:
    """What a scale or table adds to the root of a config; None where its first key is not."""
    if mark not in values:
        return None
    return read(schema, {key: values[key] for key in keys_in(schema) if key in values})


def _changed(values: dict[str, Any], overrides: list[str]) -> list[str]:
    """The keys of encodings among the overrides, each with its value; what it is at the root."""
    knobs = set(values) - {*PLAIN, *OF_TABLES, "runs", "name"}
    keys = sorted({line.split("=")[0].lstrip("+") for line in overrides} & knobs)
    return [f"{key}{values[key]}" for key in keys]


def _resolved(cfg: DictConfig) -> dict[str, Any]:
    """A composed config as plain values; raises UserError for what refers to nothing."""
    try:
        values: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as e:
        raise UserError(_first_line(e)) from None
    return values


def _default_name(
    settings: Settings, at_scale: bool, changed: list[str], overrides: list[str]
) -> str:
    """data/encoding-knob-seed, for example toy/relative-tau8-seed1.

    Files without a data.name go by the name of data.root, so that corpora have runs apart. At one
    of the scales: table-data/encoding-limit-knob-seed, so that the tables share runs.
    """
    chosen = [w.split("=", 1)[1] for w in overrides if w.startswith("encoding=")]
    said = chosen[-1] if chosen else " ".join(settings.encoding)
    label = "+".join(re.findall(r"\w+", said)) or "none"
    data = settings.data
    corpus = data.name
    if isinstance(data, Files) and data.name == data.kind:
        corpus = re.sub(r"[^\w.-]+", "_", Path(data.root).resolve().name) or data.name
    place = f"{corpus}/{label}"
    if at_scale:
        place = f"table-{place}-max{data.max_length}"
    return "-".join([place, *changed, f"seed{settings.seed}"])


def composed(words: list[str]) -> tuple[DictConfig, bool]:
    """Compose conf/train.yaml with the words, and say whether it is a sweep.

    Raises UserError for a word that does not fit.
    """
    words = [_common(word) for word in words]
    with _conf(words):
        _check(words)
        cfg = compose("train", overrides=words, return_hydra_config=True)
    _check_scale(cfg)
    sweep = _is_sweep(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
        for word in words:
            if asked := _COMMON.match(word.lstrip("+")):
                _replaced(cfg, asked[1], asked[2])
    return cfg, sweep


@contextmanager
def _conf(words: list[str]) -> Iterator[None]:
    """Let Hydra's compose read conf/; its complaints become UserErrors."""
    folders_of(words)
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir().resolve())):
        try:
            yield
        except MissingConfigException as e:
            option = str(e.missing_cfg_file).replace("/", "=")
            raise AbsentError(_absent(e, option, words), option) from None
        except (HydraException, OmegaConfBaseException) as e:
            raise UserError(_first_line(e)) from None


def _is_sweep(cfg: DictConfig) -> bool:
    mode = cfg.hydra.mode
    return mode is not None and mode.name == "MULTIRUN"


def sweep_of(words: list[str]) -> Sweep | None:
    """The runs that an experiment consists of; None unless it is a sweep.

    A word of the command line takes the place of the experiment's own values for its key. Raises
    UserError for words that Hydra cannot read and options that are not there; what else is wrong
    `composed` says of each run.
    """
    overrides = _parsed(words)
    if not any(o.key_or_group == "experiment" and not o.is_sweep_override() for o in overrides):
        return None
    for o in overrides:
        if o.is_sweep_override() and o.key_or_group == "scale":
            raise UserError(f"{o.input_line}: one scale at a time")
    first = [o for o in overrides if not o.is_sweep_override() and _decides(o)]
    with _conf(words):
        _check_groups(first, folders_of(words))
        lines = [str(o.input_line) for o in first]
        cfg = compose("train", overrides=lines, return_hydra_config=True)
        if not _is_sweep(cfg):
            return None
        _check_scale(cfg)
        own = [f"{key}={values}" for key, values in (cfg.hydra.sweeper.params or {}).items()]
        by_key = {o.get_key_element(): _values(o) for o in _parsed([*own, *words])}
    jobs = [[*job, "hydra.mode=RUN"] for job in product(*by_key.values())]
    choices = cfg.hydra.runtime.choices
    name, launcher = str(choices["experiment"]), str(choices["hydra/launcher"])
    chosen = {o.key_or_group for o in overrides}
    return Sweep(name, choices["scale"], "table" in cfg, launcher, jobs, chosen)


def _decides(override: Override) -> bool:
    """Whether a word takes part in deciding what the keys are; the group `run` does not yet."""
    group = override.key_or_group
    return group.startswith("hydra") or (group != "run" and (conf_dir() / group).is_dir())


def _values(override: Override) -> list[str]:
    """One word for each value of an override."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: name each value")
    return [f"{override.get_key_element()}={v}" for v in override.sweep_string_iterator()]


def _check_scale(cfg: DictConfig) -> None:
    """Raise UserError for a run or table without scale, and a scale where it means nothing."""
    chosen = {group: cfg.hydra.runtime.choices.get(group) for group in _STEPS}
    run, scale, experiment = (chosen[group] for group in _STEPS)
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
    return f"at which scale? add {' or '.join(f'scale={each}' for each in options_of('scale'))}"


_STEPS = ("run", "scale", "experiment")


def _absent(e: MissingConfigException, option: str, words: list[str]) -> str:
    """Say which option is missing, and which words asked for it if they do not name it."""
    asking = [word for word in words if word.split("=")[0] in _STEPS]
    if not asking or option in words:
        return _first_line(e)
    if option.startswith("data=None"):  # made of the scale's name
        return f"{' '.join(asking)}: {_which_scale()}"
    return f"{' '.join(asking)}: there is no {option}; choose another run or scale"


_COMMON = re.compile(r"encoding\.(\w+)\.(where|at)=")  # options of every entry, written or not


def _common(word: str) -> str:
    """`where` and `at` may be told to an entry whose file leaves them at their defaults."""
    return f"++{word}" if _COMMON.match(word) else word


def _replaced(cfg: DictConfig, entry: str, key: str) -> None:
    """Of `at`, keep what the word said: Hydra merges it into what the file says."""
    at = OmegaConf.select(cfg, f"encoding.{entry}.{key}")
    if key == "at" and isinstance(at, DictConfig):
        for name in list(at)[:-1]:
            del at[name]


def jobs_of(words: list[str]) -> list[Experiment]:
    """One job for each value of a sweep, to be checked before the first of them starts.

    Raises UserError as `composed` does.
    """
    plain: list[str] = []
    choices: list[list[str]] = []
    for o in _parsed(words):
        if not o.is_sweep_override():
            plain.append(str(o.input_line))
        elif o.value_type is not ValueType.GLOB_CHOICE_SWEEP:  # a glob finds what there is
            choices.append([f"{o.get_key_element()}={v}" for v in o.sweep_string_iterator()])
    firsts = [choice[0] for choice in choices]
    jobs = [
        [*plain, *firsts[:place], word, *firsts[place + 1 :]]
        for place, choice in enumerate(choices)
        for word in choice
    ]
    found = []
    for job in jobs or [plain]:
        cfg, _ = composed(job)
        if "table" in cfg and "row" not in cfg:
            raise UserError(f"{' '.join(words)}: make one table at a time, each without -m")
        found.append(experiment(cfg, job))
    return found


def _parsed(words: list[str]) -> list[Override]:
    hydra = GlobalHydra.instance()
    loader = hydra.config_loader() if hydra.is_initialized() else None  # says what a glob finds
    try:
        return OverridesParser.create(config_loader=loader).parse_overrides(words)
    except HydraException:
        raise UserError(unreadable(words)) from None


def _check(words: list[str]) -> None:
    """Find unknown groups' options and keys before Hydra does, and say what is near."""
    overrides = _parsed(words)
    for o in overrides:
        if o.is_sweep_override():
            raise UserError(f"{o.input_line}: several values; nmt-train -m makes a run of each")
        if o.is_delete() and o.key_or_group in _NEEDED:
            key = o.key_or_group
            raise UserError(f"{o.input_line}: every run has one; choose it by {key}=...")
        if o.package is not None:
            raise UserError(f"{o.input_line}: no key or group with @; see --help")
    groups = [o for o in overrides if (conf_dir() / o.key_or_group).is_dir()]
    elsewhere = [o for o in overrides if o.key_or_group.startswith(SEARCHPATH)]
    folders = folders_of(words)
    _check_groups(overrides, folders)
    known = _known(*(str(o.input_line) for o in (*elsewhere, *groups)))
    tops = {key.split(".")[0] for key in known}
    for o in overrides:
        key, line = o.key_or_group, str(o.input_line)
        if key.startswith("hydra") or (o in groups and not o.is_add()):
            continue
        if o.is_add() and (o in groups or key in known):
            raise UserError(f"{line}: has a value already; write {line[1:]}")
        if key not in known and not (_adds(o) and key.split(".")[0] in tops):
            raise UserError(_unknown(o, known, folders or ()))


_NEEDED = (*PLAIN, "runs", "name")


def _adds(override: Override) -> bool:
    """Whether a word adds a key; those of the root belong to encodings, and cannot be added."""
    return "." in override.key_or_group and (override.is_add() or override.is_force_add())


@cache
def _known(*lines: str) -> frozenset[str]:
    """The keys that there are with these options; kept, as runs of a sweep share them."""
    return frozenset(keys_of(compose("train", overrides=list(lines))))


def _check_groups(overrides: list[Override], folders: Folders | None) -> None:
    """Raise UserError for an option that is not there; others may be where we do not look."""
    for o in overrides:
        if folders is not None and (conf_dir() / o.key_or_group).is_dir():
            _check_options(o, folders)


def _check_options(override: Override, folders: Folders) -> None:
    group = override.key_or_group
    value = override.value()
    if value is None and not override.is_delete():
        raise UserError(f"{override.input_line}: name an option, or leave {group} out")
    if value == [] or value == "":
        raise UserError(f"{override.input_line}: name an option, or leave {group} out")
    options = value if isinstance(value, list) else [value]
    for option in options:
        if option is not None and str(option) not in (known := options_of(group, folders)):
            raise UserError(f"{group}={option}: no such option{nearest(str(option), known)}")
    entries = [e for o in options if group == "encoding" for e in entries_of(str(o), folders)]
    if twice := next((e for e in entries if entries.count(e) > 1), None):
        raise UserError(f"{override.input_line}: {twice} is in it twice; name it once")


def _unknown(override: Override, known: frozenset[str], folders: Folders) -> str:
    key, line = override.key_or_group, str(override.input_line)
    encodings = options_of("encoding", folders)
    if owners := [e for e in encodings if key in knobs_of(e, folders)]:
        return f"{line}: the chosen encoding has no {key}; these have: {', '.join(owners)}"
    groups = [d.name for d in conf_dir().iterdir() if d.is_dir()]
    knobs = {k for e in encodings for k in knobs_of(e, folders)}
    return f"{line}: no key {key!r}{nearest(key, [*known, *knobs, *groups], listed=False)}"


def nearest(name: str, known: list[str], listed: bool = True) -> str:
    """'; did you mean X?' if something is near, else what there is (or where to look)."""
    tails = {k.rsplit(".", 1)[-1]: k for k in known}  # the last part of a key often suffices
    tail = name.rsplit(".", 1)[-1]
    close = [tails[tail]] if tail in tails else get_close_matches(name, known, n=1, cutoff=0.5)
    close = close or [tails[t] for t in get_close_matches(tail, tails, n=1)]
    if close:
        return f"; did you mean {close[0]}?"
    return f"; choose one of {', '.join(sorted(known))}" if listed else "; see --help for all keys"


def keys_of(node: Any, prefix: str = "") -> list[str]:
    """All dotted keys of a config, inner ones included."""
    if not isinstance(node, DictConfig):
        return []
    found = []
    for key in map(str, node):
        found.append(f"{prefix}{key}")
        if not OmegaConf.is_missing(node, key) and OmegaConf.is_dict(node._get_node(key)):
            found += keys_of(node[key], f"{prefix}{key}.")
    return found


def _first_line(e: Exception) -> str:
    text = str(e).strip() or type(e).__name__
    if missing := re.search(r"Missing mandatory value: ([\w.]+)", text):
        return f"{missing[1]}: has no value; give {missing[1]}=..."
    return re.sub(r"\s+", " ", text.split("\n")[0])
