"""The options in conf/ and in directories of the user, and what their files say."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf
from yaml import YAMLError

from nmt.config.check import suggest, to_yaml
from nmt.errors import Exit, UserError

Folders: TypeAlias = tuple[Path, ...]  # directories of options in addition to conf/

TITLES = {  # groups of options, a folder of conf/ each: what one chooses there
    "data": "the corpus",
    "segmenter": "how words become pieces",
    "model": "size and shape of the Transformer",
    "encoding": "how positions are encoded; several as encoding=[absolute,relative]",
    "optim": "optimizer and learning-rate schedule",
    "trainer": "how long and on what to train",
    "decode": "how to search for a translation",
    "experiment": "a recipe of all the above, or a table of the paper",
    "scale": "corpus, model and budget of the paper's tables",
    "run": "one of the paper's ten training runs, at a scale",
}
CHOOSERS = ("scale", "experiment", "run")  # groups whose options choose options of other groups
WHOLE_KEY_GROUPS = ("encoding", *CHOOSERS)  # groups whose files name whole keys
SEARCHPATH = "hydra.searchpath"
FAMILIES = (  # of encodings, in the order of every list
    "no positions",
    "absolute positions, at the input",
    "absolute positions, in attention",
    "distances, as vectors",
    "distances, as a bias or a factor",
    "distances, from changed queries and keys",
    "order by recurrence or convolution",
    "softmax, gates and coverage",
    "positions from columns of the source",
    "several of these",
)
UNSTATED = "no family stated"
_HEADER = re.compile(rb"\s*#\s*@package\s+_global_\s*(\n|$)")
_KEY = re.compile(r"^( *)(\w+):(?: +([^# ][^#]*?))?(?: +# (.+))?$")  # indent, key, value, comment


def conf_dir() -> Path:
    """The directory conf/: in the installed package, or next to the package in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def config_dir_override(*folders: str | None) -> list[str]:
    """Turn --config-dir into an override; UserError unless it is a directory."""
    named = [folder for folder in folders if folder is not None]
    if any(not folder or not Path(folder).is_dir() for folder in named):
        raise UserError("--config-dir: name a directory of your own options", Exit.USAGE)
    urls = [f"file://{Path(folder).resolve()}" for folder in named]
    return [f"{SEARCHPATH}={quote(urls)}"] if urls else []


def quote(value: Any) -> str:
    """Write a plain value in Hydra's grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{quote(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(quote, value)) + "]"
    if not isinstance(value, str):
        return to_yaml(value)
    escaped = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), value)
    return f"'{escaped}'"


def folders_in(overrides: Iterable[Override]) -> Folders:
    """Return the directories of options that overrides name in addition to conf/, checked."""
    typed = [override.value() for override in overrides if override.key_or_group == SEARCHPATH]
    urls = [p for value in typed for p in (value if isinstance(value, list) else [value])]
    folders = tuple(Path(str(url).removeprefix("file://")) for url in urls)
    check_folders(folders)
    return folders


def check_folders(folders: Folders = ()) -> None:
    """Raise UserError for a file whose keys Hydra would misplace, or that a built-in one hides."""
    for folder in (conf_dir(), *folders):
        for path in sorted(path for group in TITLES for path in (folder / group).glob("*.yaml")):
            group = path.parent.name
            if group in WHOLE_KEY_GROUPS and not _HEADER.match(path.read_bytes()):
                raise UserError(
                    f"{path}:1: must be '# @package _global_', or all keys of the file are "
                    f"taken to be inner ones of {group}"
                )
            if folder in folders and (conf_dir() / group / path.name).exists():
                raise UserError(
                    f"{path}: {group}={path.stem} is built in and would be taken instead; rename "
                    "the file"
                )


def options_of(group: str, folders: Folders = ()) -> list[str]:
    """The options of a group, sorted."""
    return sorted({p.stem for f in (conf_dir(), *folders) for p in (f / group).glob("*.yaml")})


def path_of(group: str, option: str, folders: Folders = ()) -> Path:
    """The file of an option; UserError with the nearest one if there is none."""
    for folder in (conf_dir(), *folders):
        if (path := folder / group / f"{option}.yaml").exists():
            return path
    advice = suggest(option, options_of(group, folders))
    if group == "encoding" and entry_points(group="nmt.encodings", name=option):
        advice = "; its class is installed: name the directory of its options by --config-dir"
    raise UserError(f"{group}={option}: no such option{advice}")


def default_options() -> dict[str, str | None]:
    """The option of each group that is chosen where none is named."""
    defaults: Any = _loaded(conf_dir() / "train.yaml")["defaults"]
    pairs = [pair for default in defaults if isinstance(default, dict) for pair in default.items()]
    return {group: option for group, option in pairs if group in TITLES}


def choices_of(group: str, option: str, folders: Folders = ()) -> list[tuple[str, str]]:
    """Groups and options that an option's file chooses, as `override /model: tiny`."""
    chosen: list[tuple[str, str]] = []
    for default in _loaded(path_of(group, option, folders)).get("defaults") or []:
        for name, options in ({group: default} if isinstance(default, str) else default).items():
            inner = str(name).removeprefix("override ").partition("@")[0].removeprefix("/")
            several = options if isinstance(options, list) else [options]
            chosen += [(inner, str(o)) for o in several if o not in (None, "_self_")]
    return chosen


def chain_of(
    group: str, option: str, folders: Folders = (), above: tuple[str, ...] = ()
) -> list[str]:
    """The options of a group that an option builds on, and itself; UserError for a circle."""
    path = path_of(group, option, folders)
    if option in above:
        raise UserError(f"{path}: {group}={option} builds on itself; see its defaults")
    chain = []
    for inner in (o for g, o in choices_of(group, option, folders) if g == group):
        try:
            chain += chain_of(group, inner, folders, (*above, option))
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    return [*chain, option]


def values_of(group: str, option: str, folders: Folders = ()) -> dict[str, Any]:
    """The values in an option's file and the files it builds on, interpolations unresolved."""
    files = [_loaded(path_of(group, o, folders)) for o in chain_of(group, option, folders)]
    values: Any = OmegaConf.to_container(OmegaConf.merge(*files), resolve=False)
    values.pop("defaults", None)
    return values


def entries_of(encoding: str, folders: Folders = ()) -> dict[str, dict[str, Any]]:
    """The entries that an encoding's file and its defaults set, the defaults first."""
    entries = values_of("encoding", encoding, folders).get("encoding") or {}
    return {name: options or {} for name, options in entries.items()}


def summary(group: str, option: str, folders: Folders = ()) -> str:
    """The first comment of an option's file."""
    text = _text(path_of(group, option, folders))
    comments = [x[2:] for x in text.split("\n") if x.startswith("# ") and "@package" not in x]
    return comments[0] if comments else ""


def family_of(encoding: str, folders: Folders = ()) -> str:
    """The family that an encoding's file states, one of FAMILIES or another; or UNSTATED."""
    stated = re.search(r"^# family: *(.*\S)", _text(path_of("encoding", encoding, folders)), re.M)
    return stated[1] if stated else UNSTATED


class EncodingFacts(NamedTuple):
    """An encoding in a list of them."""

    name: str  # encoding=NAME
    family: str  # as "distances, as vectors"
    summary: str  # one line


def list_encodings(folders: Folders = ()) -> list[EncodingFacts]:
    """All options of `encoding=` by family: FAMILIES first, then families of users."""
    members: dict[str, list[EncodingFacts]] = {family: [] for family in FAMILIES}
    for name in options_of("encoding", folders):
        family = family_of(name, folders)
        facts = EncodingFacts(name, family, summary("encoding", name, folders))
        members.setdefault(family, []).append(facts)
    return [facts for of_family in members.values() for facts in of_family]


def read_comments(group: str, option: str, folders: Folders = ()) -> list[tuple[str, str, str]]:
    """Dotted key, value and comment of each line of an option's file that has all three."""
    keys: list[tuple[str, str, str]] = []
    above: list[tuple[int, str]] = []  # the keys that enclose a line, and their indents
    for line in _text(path_of(group, option, folders)).split("\n"):
        if not (m := _KEY.match(line)):
            continue
        indent, name, value, comment = len(m[1]), m[2], m[3], m[4]
        above = [*((i, k) for i, k in above if i < indent), (indent, name)]
        if value and comment:
            keys.append((".".join(k for _, k in above), value, comment))
    return keys


def _loaded(path: Path) -> Any:
    """The content of a file; not to be changed, as it is kept until the file changes."""
    stat = path.stat()
    return _parse(path, stat.st_mtime_ns, stat.st_size)


@cache
def _parse(path: Path, *stamp: int) -> Any:
    try:
        loaded = OmegaConf.load(path)
    except (YAMLError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise UserError(f"{path}: not readable as YAML in UTF-8: {why}") from None
    except OSError:  # of OmegaConf, for a single value
        loaded = None
    if not OmegaConf.is_dict(loaded):
        raise UserError(f"{path}: expected lines of KEY: VALUE")
    return OmegaConf.to_container(loaded, resolve=False)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
