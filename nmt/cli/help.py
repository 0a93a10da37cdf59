"""The pages of --help, made from conf/ and the schema, so that they cannot go stale.

The first page fits a screen; `--help GROUP` and `--help GROUP=OPTION` go on, `--help all` has
everything.
"""

import argparse
import json
import sys
from textwrap import shorten
from typing import Any, NamedTuple

from hydra.core.override_parser.types import Override

from nmt.cli.parser import Parser
from nmt.config import KINDS, conf_dir
from nmt.errors import UserError
from nmt.overrides.arguments import parse
from nmt.overrides.near import nearest, refuse_duplicates
from nmt.overrides.options import (
    GROUPS,
    Folders,
    chosen_by,
    commented,
    config_dir_override,
    default_options,
    described,
    encoding_keys,
    folders_of,
    meanings_of,
    options_of,
    summary,
    values_of,
)
from nmt.overrides.tables import TableReport, TableScale
from nmt.schema import choices_of, flat

EVERYTHING = "all"
_KEYS = "Keys (KEY=VALUE; in brackets the default of the default option):"
_OF_EVERY_ENTRY = [
    "  encoding.NAME.where, .at         sites (encoder, decoder, cross); positions;",
    "  encoding.NAME.layers, .heads     that it serves, numbers from 0, if not all;",
    "                                   of every entry, whatever its file holds",
]


class Manual(NamedTuple):
    """The hand-written part of a command's help; the rest is read from conf/."""

    name: str
    usage: str  # how to call it, and a few examples
    more: str = ""  # further examples
    groups: tuple[str, ...] = tuple(GROUPS)  # those that matter to it


def parser_of(manual: Manual) -> Parser:
    """The parser of a command of overrides, with --help [TOPIC] and --config-dir DIR."""
    parser = Parser(prog=manual.name, groups=KINDS, add_help=False)
    parser.add_argument("-h", "--help", nargs="?", const="", metavar="TOPIC")
    parser.add_argument("-cd", "--config-dir", action="append", default=[], metavar="DIR")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    return parser


def overrides_of(options: argparse.Namespace, sweep: bool = False) -> list[Override]:
    """The overrides that were typed; raises UserError for what is none, or names a key twice."""
    overrides = parse([*options.overrides, *config_dir_override(*options.config_dir)], sweep)
    refuse_duplicates(options.overrides)
    return overrides


def show_help(manual: Manual, options: argparse.Namespace) -> bool:
    """Show the page that --help asks for, if it does; UserError for a topic that is not there."""
    if options.help is None:
        return False
    folders = folders_of(config_dir_override(*options.config_dir))
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
        known = [*manual.groups, EVERYTHING]
        raise UserError(f"--help {topic}: no such group{nearest(group, known)}")
    if not equals:
        return _as_text(_group_page(group, folders))
    if option not in (options := options_of(group, folders)):
        raise UserError(f"--help {topic}: no such option{nearest(option, options)}")
    return _as_text(_option_page(group, option, folders))


def first_page(manual: Manual, folders: Folders = ()) -> str:
    """Usage, the groups with their defaults, and where to read on: one screen."""
    defaults = default_options()
    lines = [manual.usage.strip(), "", "Groups (GROUP=OPTION): the default, and how many there are"]
    for group in manual.groups:
        count = len(options_of(group, folders))
        lines.append(f"  {group:<11} {defaults.get(group) or '-':<14} {count:>3}  {GROUPS[group]}")
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
    lines = [f"{group}: {GROUPS[group]}", "", f"Options ({group}=OPTION; * is the default):"]
    lines += _options(group, folders)
    if keys := _keys_of(group, folders):
        lines += ["", _KEYS, *keys[1:]]
    if group == "encoding":
        lines += ["", "nmt-encodings NAME shows how one works."]
    return lines


def _option_page(group: str, option: str, folders: Folders) -> list[str]:
    """The keys that an option sets."""
    lines = [f"{group}={option}: {summary(group, option, folders)}", ""]
    chosen = [f"{g}={o}" for g, o in chosen_by(group, option, folders) if g != group]
    lines += [f"Chooses {' '.join(chosen)}", ""] if chosen else []
    lines.append("Keys (KEY=VALUE; in brackets their values with this option):")
    values = values_of(group, option, folders)
    if group not in KINDS:
        meanings = meanings_of(group, option, folders)
        for key, value in ((k, v) for k, v in flat(values) if not k.startswith("hydra.")):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            above = [key.rsplit(".", n)[0] for n in range(key.count(".") + 1)]  # itself first
            meaning = next((meanings[k] for k in above if k in meanings), "")
            lines += _rows([(key, shorten(text, 60, placeholder="..."), meaning)], 38)
        return [*lines, *_OF_EVERY_ENTRY] if group == "encoding" else lines
    if schema := KINDS[group].get(str(values.get("kind", ""))):
        lines += _keys(group, schema, values)
    return lines


def _options(group: str, folders: Folders) -> list[str]:
    default = default_options().get(group)
    return [
        f"   {'*' if option == default else ' '} {option:<20} {summary(group, option, folders)}"
        for option in options_of(group, folders)
    ]


def _keys_of(group: str, folders: Folders) -> list[str]:
    """The keys of a group, behind an empty line; none of one that only chooses."""
    lines = []
    for schema in KINDS.get(group, {}).values():
        doc = (schema.__doc__ or "").split("\n")[0]
        lines += ["", f"  {group}.* {schema.__name__.lower()}: {doc}", *_keys(group, schema)]
    if group in ("scale", "experiment"):
        above = "  Of the paper's tables (experiment=table1 ... table4), with examples:"
        lines += ["", above, *_keys("experiment", TableReport), *_keys("scale", TableScale)]
    if group == "encoding":
        lines += ["", "  encoding.*"]
        for option in options_of("encoding", folders):
            lines += _rows(encoding_keys(option, folders), 38)
        lines += _OF_EVERY_ENTRY
    return lines


def _root_keys(width: int) -> list[str]:
    """The keys that stand in train.yaml itself."""
    return _rows(commented(conf_dir() / "train.yaml"), width)


def _rows(keys: list[tuple[str, str, str]], width: int) -> list[str]:
    """A line for each key, default and meaning, which may be empty."""
    return [
        f"  {key:<{width}} {f'{meaning} [{default}]'.strip()}" for key, default, meaning in keys
    ]


def _keys(group: str, schema: type, values: dict[str, Any] | None = None) -> list[str]:
    """A line for each key of a schema."""
    rows = []
    for key, spec, default in described(group, schema, values):
        choices = f" ({' | '.join(choices_of(spec))})" if choices_of(spec) else ""
        rows.append((key, "-" if default is None else default, f"{spec.metadata['doc']}{choices}"))
    return _rows(rows, 30)
