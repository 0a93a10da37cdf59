"""The options of conf/ and of the user's folders, and the contents of their files."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import Field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf
from yaml import YAMLError

from nmt.config import KINDS, conf_dir
from nmt.errors import Exit, UserError
from nmt.overrides.arguments import read
from nmt.overrides.near import nearest
from nmt.overrides.quoting import quoted
from nmt.schema import flattened, keys_in

Folders: TypeAlias = tuple[Path, ...]  # directories of options in addition to conf/

GROUPS = {  # of options, a folder of conf/ each: what one chooses there
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
GLOBAL = ("encoding", "experiment", "run", "scale")  # groups whose files name whole keys
_HEADER = re.compile(rb"\s*#\s*@package\s+_global_\s*(\n|$)")
_KEY = re.compile(r"^( *)(\w+):(?: +([^# ][^#]*?))?(?: +# (.+))?$")  # indent, key, value, comment


def config_dir_override(*folders: str | None) -> list[str]:
    """The override that --config-dir means, if given; UserError unless it is a directory."""
    named = [folder for folder in folders if folder is not None]
    if any(not folder or not Path(folder).is_dir() for folder in named):
        raise UserError("--config-dir: name a directory of your own options", Exit.USAGE)
    places = [quoted(f"file://{Path(folder).resolve()}") for folder in named]
    return [f"{SEARCHPATH}=[{','.join(places)}]"] if places else []


def folders_of(lines: Iterable[str]) -> Folders:
    """The directories that overrides name in addition to conf/; see `folders_in`."""
    return folders_in(read(line for line in lines if line.lstrip("+").startswith(SEARCHPATH)))


def folders_in(overrides: Iterable[Override]) -> Folders:
    """The directories that overrides name in addition to conf/.

    Raises UserError for what such a folder must not hold (see `check`), and for other places.
    """
    folders: list[Path] = []
    for override in overrides:
        if override.key_or_group != SEARCHPATH:
            continue
        value = override.value()
        for place in map(str, value if isinstance(value, list) else [value]):
            scheme, separator, path = place.rpartition("://")
            if separator and scheme != "file":
                raise UserError(f"{override.input_line}: only directories; write --config-dir DIR")
            folders.append(Path(path))
    check(tuple(folders))
    return tuple(folders)


def chosen_options(override: Override) -> list[str]:
    """The options that an override of a group chooses."""
    value = override.value()
    options = value if isinstance(value, list) else [] if value is None else [value]
    return [str(option) for option in options]


def check(folders: Folders = ()) -> None:
    """Raise UserError for a file whose keys would go astray."""
    for folder in (conf_dir(), *folders):
        for group in GLOBAL:
            for path in sorted((folder / group).glob("*.yaml")):
                if not _HEADER.match(path.read_bytes()):
                    raise UserError(
                        f"{path}:1: must be '# @package _global_', or all keys of the file are "
                        f"taken to be inner ones of {group}"
                    )


def refuse_hidden(group: str, option: str, folders: Folders = ()) -> None:
    """Raise UserError for the choice of an option that both conf/ and a folder have.

    And where the file of a chosen option has such a one among its defaults. conf/ wins where
    neither is chosen, so that names added by an upgrade matter only to those who use them.
    """
    for folder in folders:
        if not (path := folder / group / f"{option}.yaml").exists():
            continue
        if (conf_dir() / group / path.name).exists():
            raise UserError(
                f"{path}: {group}={option} is built in and would be taken instead; rename the file"
            )
        for inner, chosen in defaults_of(group, option, folders):
            refuse_hidden(inner, chosen, folders)


def defaults_of(group: str, option: str, folders: Folders = ()) -> list[tuple[str, str]]:
    """Groups and options that the file of an option chooses, as `override /model: tiny`."""
    path = path_of(group, option, folders)
    loaded: Any = OmegaConf.to_container(_loaded(path), resolve=False) if path.exists() else {}
    chosen: list[tuple[str, str]] = []
    for default in loaded.get("defaults") or []:
        for key, options in ({group: default} if isinstance(default, str) else default).items():
            inner = str(key).removeprefix("override ").partition("@")[0].removeprefix("/")
            several = options if isinstance(options, list) else [options]
            chosen += [(inner, str(o)) for o in several if o not in (None, "_self_")]
    return chosen


def chosen_by(group: str, option: str, folders: Folders = ()) -> list[tuple[str, str]]:
    """Groups and options that an option's file chooses, and those that it builds on."""
    chosen = defaults_of(group, option, folders)
    return [c for g, o in chosen if g == group for c in chosen_by(g, o, folders)] + chosen


def values_of(group: str, option: str, folders: Folders = ()) -> dict[str, Any]:
    """The values in an option's file and those that it builds on, interpolations unresolved."""
    path = path_of(group, option, folders)
    parents = [o for inner, o in defaults_of(group, option, folders) if inner == group]
    for parent in parents:
        if not path_of(group, parent, folders).exists():
            known = nearest(parent, options_of(group, folders))
            raise UserError(f"{path}: {group}={parent}: no such option{known}")
    inherited = [values_of(group, parent, folders) for parent in parents]
    merged = OmegaConf.merge(*inherited, _loaded(path))
    values: Any = OmegaConf.to_container(merged, resolve=False)
    values.pop("defaults", None)
    return values


def _loaded(path: Path) -> Any:
    """The content of a file; not to be changed, as it is kept until the file changes."""
    stat = path.stat()
    return _parsed(path, stat.st_mtime_ns, stat.st_size)


@cache  # to name the nearest key or option takes all files, each several times
def _parsed(path: Path, *stamp: int) -> Any:
    try:
        loaded = OmegaConf.load(StringIO(_text(path)))
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # counts from 0
        what = getattr(error, "problem", None) or str(error).split("\n")[0]
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise UserError(f"{place}: not readable as YAML: {what}") from None
    except OSError:  # of OmegaConf, for a single value
        loaded = None
    if not OmegaConf.is_dict(loaded):
        raise UserError(f"{path}: expected lines of KEY: VALUE")
    return loaded


def _text(path: Path) -> str:
    """The text of an option's file; UserError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8; save it as such") from None


def default_options() -> dict[str, str | None]:
    """The option of each group that is chosen where none is named."""
    loaded = _loaded(conf_dir() / "train.yaml")
    return {k: v for default in loaded.defaults if default != "_self_" for k, v in default.items()}


class DescribedKey(NamedTuple):
    """A key with what it means, and its default."""

    key: str  # as a command line has it
    spec: Field[Any]
    default: str | None  # as YAML has it; None: there is none


def described(
    group: str, schema: type, values: dict[str, Any] | None = None
) -> Iterator[DescribedKey]:
    """The keys of a schema with their values in an option of a group.

    By default that is the group's default option, or the first one of this schema.
    """
    if values is None:
        options = [default_options()[group], *options_of(group)]
        files = (values_of(group, option) for option in options if option)
        values = next((v for v in files if set(keys_in(schema)) <= set(v)), {})
    for key, spec in flattened(schema, group if group in KINDS else ""):
        inner: Any = values
        for part in key.split(".")[group in KINDS :]:
            inner = inner.get(part, ...) if isinstance(inner, dict) else ...
        default = None if inner is ... else inner if isinstance(inner, str) else json.dumps(inner)
        yield DescribedKey(key, spec, default)


def options_of(group: str, folders: Folders = ()) -> list[str]:
    """The options of a group, sorted."""
    return sorted({p.stem for f in (conf_dir(), *folders) for p in (f / group).glob("*.yaml")})


def path_of(group: str, option: str, folders: Folders = ()) -> Path:
    """The file of an option, whether it is there or not."""
    paths = [folder / group / f"{option}.yaml" for folder in (conf_dir(), *folders)]
    return next((path for path in paths if path.exists()), paths[0])


def summary(group: str, option: str, folders: Folders = ()) -> str:
    """The first comment of an option's file."""
    text = _text(path_of(group, option, folders))
    comments = [x[2:] for x in text.split("\n") if x.startswith("# ") and "@package" not in x]
    return comments[0] if comments else ""


def family_of(encoding: str, folders: Folders = ()) -> str:
    """The family that an encoding's file states, one of FAMILIES or another; or UNSTATED."""
    text = _text(path_of("encoding", encoding, folders))
    stated = re.search(r"^# family: *(.*\S)", text, flags=re.M)
    return stated[1] if stated else UNSTATED


def families(folders: Folders = ()) -> dict[str, list[str]]:
    """The encodings of each family that has any: those of FAMILIES first, then others."""
    members: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for option in options_of("encoding", folders):
        members.setdefault(family_of(option, folders), []).append(option)
    return {family: options for family, options in members.items() if options}


def knobs_of(encoding: str, folders: Folders = ()) -> dict[str, Any]:
    """The top-level keys that an encoding's file brings along, such as tau."""
    values = values_of("encoding", encoding, folders)
    return {key: value for key, value in values.items() if key not in ("encoding", *KINDS)}


def entries_of(encoding: str, folders: Folders = ()) -> dict[str, dict[str, Any]]:
    """The entries that an encoding's file sets, those of its defaults first."""
    entries = values_of("encoding", encoding, folders).get("encoding") or {}
    return {name: options or {} for name, options in entries.items()}


def encoding_keys(option: str, folders: Folders = ()) -> list[tuple[str, str, str]]:
    """Key as a command line has it, default and meaning of all that an encoding's file sets."""
    return commented(path_of("encoding", option, folders))


def meanings_of(group: str, option: str, folders: Folders = ()) -> dict[str, str]:
    """The comments on keys in an option's file and those that it builds on."""
    parents = [o for inner, o in defaults_of(group, option, folders) if inner == group]
    meanings = {k: v for o in parents for k, v in meanings_of(group, o, folders).items()}
    return meanings | {key: m for key, _, m in commented(path_of(group, option, folders))}


def commented(path: Path) -> list[tuple[str, str, str]]:
    """Dotted key, value and comment of each line of a file in conf/ that has all three."""
    keys: list[tuple[str, str, str]] = []
    above: list[tuple[int, str]] = []  # the keys that enclose a line, and their indents
    for line in _text(path).split("\n"):
        if not (m := _KEY.match(line)):
            continue
        indent, key, value, comment = len(m[1]), m[2], m[3], m[4]
        above = [*((i, k) for i, k in above if i < indent), (indent, key)]
        if value and comment:
            keys.append((".".join(k for _, k in above), value, comment))
    return keys
