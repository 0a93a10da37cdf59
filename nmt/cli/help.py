"""The pages of --help, made from conf/ and the settings, so that they cannot go stale.

The first page fits a screen; `--help GROUP` and `--help GROUP=OPTION` go on, `--help all` has
everything.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from textwrap import shorten
from typing import Any, NamedTuple, get_args, get_origin

from hydra.core.override_parser.types import Override

from nmt.cli.options import Parser, describe_key
from nmt.config import catalog, check
from nmt.config.catalog import Folders
from nmt.config.hydra_conf import parse
from nmt.config.settings import GROUPS, RunLocation, Settings
from nmt.errors import UserError

EVERYTHING = "all"
_OF_EVERY_ENTRY = [
    "  encoding.NAME.where, .at, .layers  sites (encoder, decoder, cross), positions, and layers",
    "                                     from 0, of every entry, whatever its file holds",
]


class Manual(NamedTuple):
    """The hand-written part of a command's help; the rest is read from conf/."""

    name: str
    usage: str  # how to call it, and a few examples
    more: str = ""  # further examples
    groups: tuple[str, ...] = tuple(catalog.TITLES)  # that matter to the command


def make_parser(manual: Manual) -> Parser:
    """The parser of a command of overrides, with --help [TOPIC] and --config-dir DIR."""
    parser = Parser(manual.name)
    parser.add_argument("-h", "--help", nargs="?", const="", metavar="TOPIC")
    parser.add_argument("-cd", "--config-dir", action="append", default=[], metavar="DIR")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    return parser


def parse_overrides(options: argparse.Namespace) -> list[Override]:
    """The overrides that were typed; raises UserError for what is none."""
    return parse([*options.overrides, *catalog.config_dir_override(*options.config_dir)])


def show_help(manual: Manual, options: argparse.Namespace) -> bool:
    """Show the page that --help asks for, if it does; UserError for a topic that is not there."""
    if options.help is None:
        return False
    folders = catalog.folders_in(parse(catalog.config_dir_override(*options.config_dir)))
    sys.stdout.write(help_page(manual, options.help, folders))
    return True


def help_page(manual: Manual, topic: str, folders: Folders = ()) -> str:
    """The page of a topic, the first one if it is empty."""
    group, equals, option = topic.partition("=")
    if not topic:
        lines = _first_page(manual, folders)
    elif topic == EVERYTHING:
        lines = _whole_manual(manual, folders)
    elif group not in manual.groups:
        near = check.suggest(group, [*manual.groups, EVERYTHING])
        raise UserError(f"--help {topic}: no such group{near}")
    elif equals:
        catalog.path_of(group, option, folders)
        lines = _option_page(group, option, folders)
    else:
        lines = _group_page(group, folders)
    return "\n".join(lines) + "\n"


def _first_page(manual: Manual, folders: Folders) -> list[str]:
    """Usage, the groups with their defaults, and where to read on: one screen."""
    defaults = catalog.default_options()
    lines = [manual.usage.strip(), "", "Groups (GROUP=OPTION): the default, and how many there are"]
    for group in manual.groups:
        count, title = len(catalog.options_of(group, folders)), catalog.TITLES[group]
        lines.append(f"  {group:<11} {defaults.get(group) or '-':<14} {count:>3}  {title}")
    lines.append("Keys of no group (KEY=VALUE), in brackets their defaults:")
    example = "encoding=relative" if "encoding" in manual.groups else "data=files"
    lines += [*_root_keys(11), "", "Read on:"]
    return [
        *lines,
        f"  {manual.name} --help GROUP          options and keys of a group, as --help data",
        f"  {manual.name} --help GROUP=OPTION   what an option sets, as --help {example}",
        f"  {manual.name} --help all            all groups, options and keys",
    ]


def _whole_manual(manual: Manual, folders: Folders) -> list[str]:
    """Usage, then the keys of no group and the pages of all groups."""
    lines = [manual.usage.strip() + "\n" + manual.more.rstrip(), "", "Keys of no group:"]
    lines += _root_keys(30)
    for group in manual.groups:
        lines += ["", *_group_page(group, folders)]
    return lines


def _group_page(group: str, folders: Folders) -> list[str]:
    lines = [f"{group}: {catalog.TITLES[group]}", "", f"Options ({group}=OPTION; * the default):"]
    default = catalog.default_options().get(group)
    for option in catalog.options_of(group, folders):
        mark = "*" if option == default else " "
        lines.append(f"   {mark} {option:<20} {catalog.summary(group, option, folders)}")
    rows = list(_describe(group, GROUPS[group], {})) if group in GROUPS else []
    if group == "encoding":
        commented_keys = _comments(group, catalog.options_of(group, folders), folders).items()
        rows = [(key, *row) for key, row in commented_keys if key.split(".")[0] not in GROUPS]
    lines += ["", "Keys (KEY=VALUE; in brackets the default):", *_align(rows)] if rows else []
    if group == "encoding":
        lines += [*_OF_EVERY_ENTRY, "", "nmt-encodings NAME shows how one works."]
    elif not rows:  # each of its options has keys of its own
        lines += ["", f"--help {group}=OPTION shows what an option sets."]
    return lines


def _option_page(group: str, option: str, folders: Folders) -> list[str]:
    """The keys that an option sets, or all of its group."""
    values = catalog.values_of(group, option, folders)
    chain = catalog.chain_of(group, option, folders)
    choices = [pair for part in chain for pair in catalog.choices_of(group, part, folders)]
    chosen = [f"{g}={o}" for g, o in choices if g != group]
    lines = [f"{group}={option}: {catalog.summary(group, option, folders)}", ""]
    lines += [f"Chooses {' '.join(chosen)}", ""] if chosen else []
    lines.append("Keys (KEY=VALUE; in brackets their values with this option):")
    if group in GROUPS:
        return [*lines, *_align(_describe(group, GROUPS[group], values))]
    comments, rows = _comments(group, [option], folders), []
    for key, value in check.flatten(values):
        if not key.startswith("hydra."):
            above = [key.rsplit(".", n)[0] for n in range(key.count(".") + 1)]  # itself first
            declared = check.find_key(Settings, key)
            meaning = declared.doc if declared is not None else ""
            meaning = next((comments[k][1] for k in above if k in comments), meaning)
            rows.append((key, shorten(_text(value), 60, placeholder="..."), meaning))
    return [*lines, *_align(rows), *(_OF_EVERY_ENTRY if group == "encoding" else [])]


def _comments(group: str, options: Iterable[str], folders: Folders) -> dict[str, tuple[str, str]]:
    """Key -> value and comment, of options' files and the files that these build on."""
    parts = [part for option in options for part in catalog.chain_of(group, option, folders)]
    rows = [
        row for part in dict.fromkeys(parts) for row in catalog.read_comments(group, part, folders)
    ]
    return {key: (value, comment) for key, value, comment in rows}


def _root_keys(width: int) -> list[str]:
    default = _text(check.keys_of(Settings)["seed"].default)
    seed = ("seed", default, describe_key(Settings, "seed"))
    return _align([seed, *_describe("", RunLocation, {})], width)


def _describe(above: str, schema: Any, values: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Key, value and meaning of each key of a dataclass that counts; NAME stands for a user's."""
    idle = check.idle_keys(schema, values["kind"]) if "kind" in values else set()
    for name, declared in check.keys_of(schema).items():
        if name not in idle:
            key, text = check.join_key(above, name), _text(values.get(name, declared.default))
            yield key, text, describe_key(schema, name)
            if get_origin(declared.kind) is dict:
                yield from _describe(f"{key}.NAME", get_args(declared.kind)[1], {})


def _text(value: Any) -> str:
    if value == check.MANDATORY:
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _align(rows: Iterable[tuple[str, str, str]], width: int = 38) -> list[str]:
    return [f"  {key:<{width}} {f'{meaning} [{value}]'.strip()}" for key, value, meaning in rows]
