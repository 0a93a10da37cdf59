"""Overrides quoted for Hydra's grammar: paths as typed, and hints to paste into a shell."""

import os
import re
import shlex
from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from nmt.config import KINDS, is_path
from nmt.overrides.tables import RunKeys, TableReport, TableScale
from nmt.schema import flattened

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_HYDRA = re.compile(rf"(?:{_QUOTED}|null|\?\?\?|)", re.I | re.S)  # a value that is not a text
_ESCAPED = re.compile(r"\\[()\[\]{}:=,\\ \t]")  # as Hydra wants it outside of quotes
_LEAF = re.compile(rf"{_QUOTED}|[^\[\]{{}},:]+", re.S)  # inside of [] and {{}}
_PLAIN = re.compile(r"[\w/+.$%*@?| -]+", re.A)  # needs no quotes there
_INTERPOLATED = re.compile(r"\$\{(?:[^{}]|\$\{[^{}]*\})*\}")  # also one within another
_IN_SHELL = re.compile(r'["$`\\!]')  # not what it seems between double quotes


def quoted(text: object) -> str:
    """A text quoted for Hydra's grammar."""
    return QuotedString(str(text), Quote.single).with_quotes()


def quoted_override(line: str, sweep: bool = False) -> str:
    """Quote the value of a key that holds a path or another text; any other is unchanged.

    So `data.root=a,b (c)` means this directory, and `data.root=~/a` one below the home directory.
    In a sweep, commas part the values, but not within ${...}. What is in quotes already, or escaped
    as Hydra wants it, is left to Hydra.
    """
    key, equals, value = line.partition("=")
    plain = key.lstrip("+")
    if not equals or not _is_text(plain) or _HYDRA.fullmatch(value) or _ESCAPED.search(value):
        return line
    if _function(value) or (sweep and re.search("['\"]", value)):
        return line
    # those within ${...} stay; NUL, which no argument holds, stands for them meanwhile
    masked = _INTERPOLATED.sub(lambda match: match[0].replace(",", "\0"), value)
    texts = [t.replace("\0", ",") for t in masked.split(",")] if sweep else [value]
    if is_path(plain):
        texts = [os.path.expanduser(text) for text in texts]  # noqa: PTH111  (keeps ./ and //)
    return f"{key}={','.join(map(quoted, texts))}"


def unreadable(lines: list[str]) -> str:
    """Say which override Hydra cannot read, and what to write instead."""
    wrong = next((line for line in lines if not is_readable(line)), " ".join(lines))
    if shown := hint(wrong):
        return f"{wrong}: Hydra reads this otherwise than text; write {shown}"
    return f"{wrong}: not readable as key=value; keys have letters, digits, _ and . only"


def hint(line: str) -> str | None:
    """The quoted form to type in a shell if Hydra cannot read it; None where quotes do not help."""
    key, _, value = line.partition("=")
    if not line.isprintable():
        return None
    inner = _LEAF.sub(lambda leaf: _leaf(leaf[0]), value) if value[:1] in ("[", "{") else value
    for candidate in (f"{key}={inner}", f"{key}={quoted(value)}"):
        if is_readable(candidate):
            return f'"{candidate}"' if not _IN_SHELL.search(candidate) else shlex.quote(candidate)
    return None


def _leaf(text: str) -> str:
    """A value inside of [] or {}, quoted where it must be."""
    bare = text.strip()
    if not bare or _PLAIN.fullmatch(bare) or re.fullmatch(_QUOTED, bare, re.S):
        return text
    return text.replace(bare, quoted(os.path.expanduser(bare)))  # noqa: PTH111


def is_readable(line: str) -> bool:
    """Whether an override is in Hydra's grammar."""
    try:
        OverridesParser.create().parse_override(line)
    except HydraException:
        return False
    return True


def _function(value: str) -> bool:
    """Whether a value calls one of Hydra's functions, such as choice(a,b)."""
    name = re.match(r"(\w+)\s*\(.*\)$", value, re.S)
    return name is not None and name[1] in OverridesParser.create().functions.definitions


def _is_text(key: str) -> bool:
    return re.sub(r"^(data\.(columns|corpora))\.\w+\.", r"\1.NAME.", key) in _texts()


@cache
def _texts() -> frozenset[str]:
    """The keys that hold any text; NAME stands for that of a column or corpus."""
    schemas = [(group, schema) for group, kinds in KINDS.items() for schema in kinds.values()]
    schemas += [("", RunKeys), ("", TableScale), ("", TableReport)]
    keys = (
        key
        for group, schema in schemas
        for key, spec in flattened(schema, group)
        if spec.type in (str, str | None) and not spec.metadata["choices"]
    )
    return frozenset(["parent", *keys])  # a key of experiment=lengthen alone
