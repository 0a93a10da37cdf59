"""What --help shows, made from conf/ and the schema, so that it cannot go stale.

The first page fits a screen; `--help GROUP` and `--help GROUP=OPTION` go on, `--help all` has
everything.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from nmt.config import KINDS, conf_dir
from nmt.errors import UserError
from nmt.overrides.arguments import split
from nmt.overrides.compose import OF_TABLES
from nmt.overrides.near import nearest
from nmt.overrides.options import (
    GROUPS,
    Folders,
    commented,
    encoding_keys,
    folders_of,
    options_of,
    path_of,
    summary,
)
from nmt.schema import choices_of

FLAGS = ("-h", "--help")
EVERYTHING = "all"
_OF_EVERY_ENTRY = [
    "  encoding.NAME.where, .at         sites (encoder, decoder, cross); positions;",
    "                                   of every entry, whatever its file holds",
]


_TYPED = {"None": "null", "True": "true", "False": "false"}


class Manual(NamedTuple):
    """What a command says of itself; the rest is read from conf/."""

    name: str
    usage: str  # how to call it, and a few examples
    more: str = ""  # further examples
    groups: tuple[str, ...] = tuple(GROUPS)  # those that matter to it


def asked_for(argv: Sequence[str]) -> bool:
    """Whether help is asked for."""
    return bool(set(FLAGS) & set(argv))


def shown(manual: Manual, argv: Sequence[str]) -> str:
    """The page that the arguments ask for; UserError for a topic that is not there."""
    place = min(argv.index(flag) for flag in FLAGS if flag in argv)
    topic = next((a for a in argv[place + 1 :][:1] if not a.startswith("-")), None)
    rest = [a for i, a in enumerate(argv) if a not in FLAGS and (topic is None or i != place + 1)]
    config_dir = {"--config-dir", "-cd"} & set(rest)
    folders = (folders_of(split(rest)[1]) if config_dir else None) or ()
    if topic is None:
        return first_page(manual, folders)
    if topic == EVERYTHING:
        return everything(manual, folders)
    group, equals, option = topic.partition("=")
    if group not in manual.groups:
        known = [*manual.groups, EVERYTHING]
        raise UserError(f"--help {topic}: no such group{nearest(group, known)}")
    if not equals:
        return _joined(_group_page(group, folders))
    if option not in (options := options_of(group, folders)):
        raise UserError(f"--help {topic}: no such option{nearest(option, options)}")
    return _joined(_option_page(group, option, folders))


def first_page(manual: Manual, folders: Folders = ()) -> str:
    """Usage, the groups with their defaults, and where to read on: one screen."""
    chosen = _defaults()
    lines = [manual.usage.strip(), "", "Groups (GROUP=OPTION): the default, and how many there are"]
    for group in manual.groups:
        count = len(options_of(group, folders))
        lines.append(f"  {group:<11} {chosen.get(group) or '-':<14} {count:>3}  {GROUPS[group]}")
    lines += ["Keys of no group (KEY=VALUE), in brackets their defaults:", *_rows(root_keys(), 11)]
    ways = {
        "GROUP": "options and keys of a group, as --help trainer",
        "GROUP=OPTION": "what an option sets, as --help encoding=relative",
        EVERYTHING: "all groups, options and keys",
    }
    if "trainer" not in manual.groups:
        ways["GROUP"], ways["GROUP=OPTION"] = ("as --help data", "as --help data=files")
    lines += ["", "Read on:"]
    lines += [f"  {manual.name} --help {topic:<14} {what}" for topic, what in ways.items()]
    return _joined(lines)


def everything(manual: Manual, folders: Folders = ()) -> str:
    """Usage, all groups and their options, then every key with its meaning and default."""
    lines = [f"{manual.usage.strip()}\n{manual.more.rstrip()}", ""]
    lines.append("Groups (GROUP=OPTION; * is the default):")
    for group in manual.groups:
        if options := _options(group, folders):
            lines += [f"  {group}", *options]
    lines += ["", "Keys (KEY=VALUE; in brackets the default of the default option):"]
    lines += _rows(root_keys(), 30)
    for group in manual.groups:
        if group in KINDS:
            lines += _keys_of_kinds(group)
    if "scale" in manual.groups:
        lines += ["", *_keys_of_tables()]
    if "encoding" in manual.groups:
        lines += ["", *_keys_of_encodings(folders)]
    return _joined(lines)


def _joined(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _group_page(group: str, folders: Folders) -> list[str]:
    """A group's options and keys."""
    lines = [f"{group}: {GROUPS[group]}", "", f"Options ({group}=OPTION; * is the default):"]
    lines += _options(group, folders)
    if group in KINDS:
        lines += ["", "Keys (KEY=VALUE; in brackets the default of the default option):"]
        lines += _keys_of_kinds(group)[1:]
    if group in ("scale", "experiment"):
        lines += ["", "Keys (KEY=VALUE; in brackets the default):", *_keys_of_tables()]
    if group == "encoding":
        lines += ["", "Keys (KEY=VALUE; in brackets the default):", *_keys_of_encodings(folders)]
        lines += ["", "nmt-encodings NAME shows how one works."]
    return lines


def _option_page(group: str, option: str, folders: Folders) -> list[str]:
    """What an option sets."""
    lines = [f"{group}={option}: {summary(group, option, folders)}", ""]
    lines.append("Keys (KEY=VALUE; in brackets their values with this option):")
    if group not in KINDS:
        lines += _rows(commented(path_of(group, option, folders)), 38)
        return [*lines, *_OF_EVERY_ENTRY] if group == "encoding" else lines
    values = _values_of(group, option, folders)
    for schema in KINDS[group].values():
        if set(values) <= {f.name for f in fields(schema)}:
            return [*lines, *_keys(group, schema, values)]
    return lines


def _options(group: str, folders: Folders) -> list[str]:
    default = _defaults().get(group)
    return [
        f"   {'*' if option == default else ' '} {option:<20} {summary(group, option, folders)}"
        for option in options_of(group, folders)
    ]


def _keys_of_kinds(group: str) -> list[str]:
    lines = []
    for schema in KINDS[group].values():
        doc = (schema.__doc__ or "").split("\n")[0]
        lines += ["", f"  {group}.* {schema.__name__.lower()}: {doc}"]
        lines += _keys(group, schema, _default_values(group, schema))
    return lines


def _keys_of_tables() -> list[str]:
    above = "  Of the paper's tables (experiment=table1 ... table4) at the default scale:"
    return [above, *_rows(table_keys(), 30)]


def _keys_of_encodings(folders: Folders) -> list[str]:
    lines = ["  encoding.*"]
    for option in options_of("encoding", folders):
        lines += _rows(encoding_keys(option, folders), 38)
    return [*lines, *_OF_EVERY_ENTRY]


def _rows(keys: list[tuple[str, str, str]], width: int) -> list[str]:
    """A line for each key, default and meaning."""
    return [f"  {key:<{width}} {meaning} [{default}]" for key, default, meaning in keys]


def root_keys() -> list[tuple[str, str, str]]:
    """Key, default and meaning of what stands in train.yaml itself."""
    return commented(conf_dir() / "train.yaml")


def table_keys() -> list[tuple[str, str, str]]:
    """Key, default and meaning of what a table and its scale add to a config."""
    shared, own = (conf_dir() / "experiment" / name for name in ("parts/table.yaml", "table2.yaml"))
    loaded: Any = OmegaConf.load(shared)
    (scale,) = (v for each in loaded.defaults for k, v in each.items() if k.endswith("/scale"))
    keys = commented(own) + commented(shared) + commented(path_of("scale", scale))
    return [each for each in keys if each[0].split(".")[0] in OF_TABLES]


def _defaults() -> dict[str, str]:
    loaded: Any = OmegaConf.load(conf_dir() / "train.yaml")
    return {k: v for d in loaded.defaults if d != "_self_" for k, v in d.items()}


def _keys(group: str, schema: type, values: dict[str, Any]) -> list[str]:
    rows = []
    for f in fields(schema):
        key = f"{group}.{f.name}"
        choices = f" ({' | '.join(choices_of(f))})" if choices_of(f) else ""
        rows.append(f"  {key:<30} {f.metadata['doc']}{choices} [{values.get(f.name, '-')}]")
        if inner := f.metadata["of"]:  # what a mapping of names holds has no defaults
            rows += _keys(f"{key}.NAME", inner, {})
    return rows


def _default_values(group: str, schema: type) -> dict[str, Any]:
    """Those of the group's default option, or of the first that has this schema."""
    for option in [_defaults().get(group, ""), *options_of(group)]:
        values = _values_of(group, option)
        if {f.name for f in fields(schema)} <= set(values):
            return values
    return {}


def _values_of(group: str, option: str, folders: Folders = ()) -> dict[str, Any]:
    """What an option's file and those that it builds on say, as a command line has it."""
    loaded: Any = OmegaConf.load(path_of(group, option, folders))
    values: dict[str, Any] = {}
    for parent in loaded.pop("defaults", []):
        if isinstance(parent, str) and parent != "_self_":
            values |= _values_of(group, parent, folders)
    own: Any = OmegaConf.to_container(loaded)
    return values | {key: _TYPED.get(str(value), value) for key, value in own.items()}
