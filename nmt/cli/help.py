"""The pages of --help, made from conf/ and the schema, so that they cannot go stale.

The first page fits a screen; `--help GROUP` and `--help GROUP=OPTION` go on, `--help all` has
everything.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from textwrap import shorten
from typing import Any, Literal, NamedTuple, get_args, get_origin

from hydra.core.override_parser.types import Override

from nmt.cli.options import Parser
from nmt.config import check
from nmt.config.catalog import (
    ABOUT,
    Folders,
    chain_of,
    chosen_by,
    commented,
    config_dir_override,
    default_options,
    folders_in,
    options_of,
    path_of,
    summary,
    values_of,
)
from nmt.config.hydra_conf import parse
from nmt.config.settings import GROUPS, Place, Settings
from nmt.errors import UserError

EVERYTHING = "all"
_KEYS = "Keys (KEY=VALUE; in brackets the default):"
_OF_EVERY_ENTRY = [
    "  encoding.NAME.where, .at, .layers  sites (encoder, decoder, cross), positions, and layers",
    "                                     from 0, of every entry, whatever its file holds",
]


class Manual(NamedTuple):
    """The hand-written part of a command's help; the rest is read from conf/."""

    name: str
    usage: str  # how to call it, and a few examples
    more: str = ""  # further examples
    groups: tuple[str, ...] = tuple(ABOUT)  # those that matter to it


def parser_of(manual: Manual) -> Parser:
    """The parser of a command of overrides, with --help [TOPIC] and --config-dir DIR."""
    parser = Parser(prog=manual.name, add_help=False)
    parser.add_argument("-h", "--help", nargs="?", const="", metavar="TOPIC")
    parser.add_argument("-cd", "--config-dir", action="append", default=[], metavar="DIR")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    return parser


def overrides_of(options: argparse.Namespace) -> list[Override]:
    """The overrides that were typed; raises UserError for what is none."""
    return parse([*options.overrides, *config_dir_override(*options.config_dir)])


def show_help(manual: Manual, options: argparse.Namespace) -> bool:
    """Show the page that --help asks for, if it does; UserError for a topic that is not there."""
    if options.help is None:
        return False
    folders = folders_in(parse(config_dir_override(*options.config_dir)))
    sys.stdout.write(help_page(manual, options.help, folders))
    return True


def help_page(manual: Manual, topic: str, folders: Folders = ()) -> str:
    """The page of a topic, the first one if it is empty."""
    if not topic:
        return first_page(manual, folders)
    if topic == EVERYTHING:
        return whole_manual(manual, folders)
    group, equals, option = topic.partition("=")
    if group not in manual.groups:
        near = check.near(group, [*manual.groups, EVERYTHING])
        raise UserError(f"--help {topic}: no such group{near}")
    if not equals:
        return _as_text(_group_page(group, folders))
    path_of(group, option, folders)
    return _as_text(_option_page(group, option, folders))


def first_page(manual: Manual, folders: Folders = ()) -> str:
    """Usage, the groups with their defaults, and where to read on: one screen."""
    defaults = default_options()
    lines = [manual.usage.strip(), "", "Groups (GROUP=OPTION): the default, and how many there are"]
    for group in manual.groups:
        count = len(options_of(group, folders))
        lines.append(f"  {group:<11} {defaults.get(group) or '-':<14} {count:>3}  {ABOUT[group]}")
    lines += ["Keys of no group (KEY=VALUE), in brackets their defaults:", *_root_keys(11)]
    ways = {
        "GROUP": "options and keys of a group, as --help trainer",
        "GROUP=OPTION": "what an option sets, as --help encoding=relative",
        EVERYTHING: "all groups, options and keys",
    }
    if "trainer" not in manual.groups:
        ways["GROUP"], ways["GROUP=OPTION"] = ("as --help data", "as --help data=files")
    lines += ["", "Read on:"]
    lines += [f"  {manual.name} --help {topic:<14} {what}" for topic, what in ways.items()]
    return _as_text(lines)


def whole_manual(manual: Manual, folders: Folders = ()) -> str:
    """Usage, then the keys of no group and the pages of all groups."""
    lines = [f"{manual.usage.strip()}\n{manual.more.rstrip()}", "", _KEYS, *_root_keys(30)]
    for group in manual.groups:
        lines += ["", *_group_page(group, folders)]
    return _as_text(lines)


def _as_text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _group_page(group: str, folders: Folders) -> list[str]:
    """A group's options and keys."""
    lines = [f"{group}: {ABOUT[group]}", "", f"Options ({group}=OPTION; * is the default):"]
    lines += _options(group, folders)
    if keys := _keys_of(group, folders):
        lines += ["", _KEYS, *keys]
    if group == "encoding":
        lines += ["", "nmt-encodings NAME shows how one works."]
    return lines


def _option_page(group: str, option: str, folders: Folders) -> list[str]:
    """The keys that an option sets, and those of its group."""
    lines = [f"{group}={option}: {summary(group, option, folders)}", ""]
    chosen = [
        f"{g}={o}"
        for part in chain_of(group, option, folders)
        for g, o in chosen_by(group, part, folders)
        if g != group
    ]
    lines += [f"Chooses {' '.join(chosen)}", ""] if chosen else []
    lines.append("Keys (KEY=VALUE; in brackets their values with this option):")
    values = values_of(group, option, folders)
    if group in GROUPS:
        return [*lines, *_keys(group, GROUPS[group], values)]
    meanings = {
        key: meaning
        for part in chain_of(group, option, folders)
        for key, _, meaning in commented(group, part, folders)
    }
    for key, value in ((k, v) for k, v in check.flat(values) if not k.startswith("hydra.")):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        above = [key.rsplit(".", n)[0] for n in range(key.count(".") + 1)]  # itself first
        meaning = next((meanings[k] for k in above if k in meanings), "")
        lines += _rows([(key, shorten(text, 60, placeholder="..."), meaning)], 38)
    return [*lines, *_OF_EVERY_ENTRY] if group == "encoding" else lines


def _options(group: str, folders: Folders) -> list[str]:
    default = default_options().get(group)
    return [
        f"   {'*' if option == default else ' '} {option:<20} {summary(group, option, folders)}"
        for option in options_of(group, folders)
    ]


def _keys_of(group: str, folders: Folders) -> list[str]:
    """The keys of a group; none of one that only chooses."""
    if group in GROUPS:
        doc = (GROUPS[group].__doc__ or "").split("\n")[0]
        return [f"  {group}.*: {doc}", *_keys(group, GROUPS[group], {})]
    if group == "encoding":
        rows = [row for o in options_of(group, folders) for row in commented(group, o, folders)]
        return ["  encoding.*", *_rows(rows, 38), *_OF_EVERY_ENTRY]
    shown = {"scale": ["small"], "experiment": ["table2", "parts/table"]}.get(group, [])
    rows = [row for o in shown for row in commented(group, o)]
    return _rows((row for row in rows if row[0].split(".")[0] not in GROUPS), 30)


def _root_keys(width: int) -> list[str]:
    """The keys of no group."""
    seed = Settings.__dataclass_fields__["seed"]
    rows = [("seed", "1", seed.metadata["doc"])]
    for name, declared in Place.__dataclass_fields__.items():
        rows.append((name, check.yaml(declared.default), declared.metadata["doc"]))
    return _rows(rows, width)


def _rows(keys: Iterable[tuple[str, str, str]], width: int) -> list[str]:
    """A line for each key, default and meaning, which may be empty."""
    return [
        f"  {key:<{width}} {f'{meaning} [{default}]'.strip()}" for key, default, meaning in keys
    ]


def _keys(group: str, schema: type, values: dict[str, Any]) -> list[str]:
    """A line for each key of a schema that counts with these values, or with any."""
    idle = check.idle_keys(schema, values["kind"]) if "kind" in values else set()
    return _rows(
        (row for row in _described(group, schema, values) if row[0].split(".")[1] not in idle), 30
    )


def _described(above: str, schema: Any, values: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Dotted key, value and meaning of each key of a schema, and of those below it as NAME."""
    for name, declared in check.keys_of(schema).items():
        spec, key = schema.__dataclass_fields__[name], f"{above}.{name}"
        kind = (
            get_args(declared.kind)[0] if type(None) in get_args(declared.kind) else declared.kind
        )
        choices = " | ".join(map(check.yaml, get_args(kind))) if get_origin(kind) is Literal else ""
        only = f"kind={'|'.join(spec.metadata['only'])}: " if spec.metadata["only"] else ""
        meaning = f"{only}{spec.metadata['doc']}{f' ({choices})' if choices else ''}"
        value = values.get(name, declared.default)
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, "-" if text == check.OPEN else text, meaning
        if get_origin(kind) is dict:
            yield from _described(f"{key}.NAME", get_args(kind)[1], {})
