"""One check of plain values against annotated keys: of settings, encodings, positions and JSON.

A schema is a dataclass, or a class whose constructor is annotated. A key has a type, which may be
`Annotated` with bounds, a default, and in a dataclass what it means.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from pathlib import PurePath
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from nmt.errors import UserError

LARGEST = 2**31 - 1  # of all numbers; a product of two such integers fits into 64 bits
MANDATORY = "???"  # the value of a key that has none, as OmegaConf writes it


@dataclass(frozen=True)
class Between:
    """The least and greatest value of a number."""

    least: float = -math.inf
    most: float = math.inf
    above: bool = False  # the least value itself is too small

    def refusal(self, value: Any) -> str | None:
        """Say what a number must be, if this one is out of bounds."""
        low = value <= self.least if self.above else value < self.least
        if not low and value <= self.most:
            return None
        if self.above:
            return f"must be above {self.least:g}"
        if self.most == math.inf:
            return f"must be at least {self.least:g}"
        return f"must be from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Inside:
    """A name that becomes a path within some directory, and must not lead out of it."""

    def refusal(self, value: Any) -> str | None:
        """Say what a name must be, if this one leads out of its directory."""
        path = PurePath(value)
        inside = path.parts and not path.is_absolute() and ".." not in path.parts
        return None if inside else "becomes a path: must not be empty, absolute, or lead out by .."


PositiveInt = Annotated[int, Between(1)]
NonNegativeInt = Annotated[int, Between(0)]
PositiveFloat = Annotated[float, Between(0, above=True)]
NonNegativeFloat = Annotated[float, Between(0)]
Share = Annotated[float, Between(0, 1)]
Name = Annotated[str, Inside()]


def key(
    default: Any, doc: str, only: tuple[str, ...] = (), path: bool = False, effect: bool = True
) -> Any:
    """Declare a key of a dataclass: its default, and what it means.

    `only`: the values of the dataclass's key `kind` with which this one counts; none: all. `path`:
    the value is a path, which means nothing on another machine. `effect`: it may change a result.
    """
    metadata = {"doc": doc, "only": only, "path": path, "effect": effect}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: default.copy(), metadata=metadata)
    return field(default=default, metadata=metadata)


class Key(NamedTuple):
    """A declared key; see `key`."""

    kind: Any  # its type
    default: Any  # `...`: it has none
    doc: str = ""
    only: tuple[str, ...] = ()
    path: bool = False
    effect: bool = True


def keys_of(schema: Any) -> dict[str, Key]:
    """The keys of a dataclass, or of a constructor, in their order."""
    keys: dict[str, Key] = _keys_of(schema)  # `cache` would take no class, as mypy sees it
    return keys


@cache
def _keys_of(schema: Any) -> dict[str, Key]:
    if is_dataclass(schema):
        hints = get_type_hints(schema, include_extras=True)
        declared = [f for f in fields(schema) if f.init]
        return {f.name: Key(hints[f.name], _default_of(f), **f.metadata) for f in declared}
    hints = get_type_hints(schema.__init__, include_extras=True)
    defaults = {n: ... if p.default is Parameter.empty else p.default
                for n, p in signature(schema).parameters.items()}  # fmt: skip
    return {name: Key(hints[name], default) for name, default in defaults.items() if name in hints}


def _default_of(declared: Field[Any]) -> Any:
    if declared.default_factory is not MISSING:
        return declared.default_factory()
    return ... if declared.default is MISSING else declared.default


def find_key(schema: Any, dotted: str) -> Key | None:
    """The key with a dotted name, as data.columns.NAME.train; None if there is none."""
    name, _, inner = dotted.partition(".")
    declared = keys_of(schema).get(name)
    if declared is None or not inner:
        return declared
    kind = declared.kind
    if get_origin(kind) is dict:  # whose names are the user's
        kind, inner = get_args(kind)[1], inner.partition(".")[2]
    return find_key(kind, inner) if inner and is_dataclass(kind) else None


def idle_keys(schema: Any, kind: Any) -> set[str]:
    """The keys of a dataclass that do not count with this value of its `kind`."""
    return {name for name, k in keys_of(schema).items() if k.only and kind not in k.only}


def to_plain(value: Any) -> Any:
    """Turn objects of schemas into plain values, without the keys that do not count."""
    if is_dataclass(value):
        idle = idle_keys(type(value), getattr(value, "kind", None))
        return {
            f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.name not in idle
        }
    if isinstance(value, dict):
        return {name: to_plain(inner) for name, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def read(schema: Any, values: Any, prefix: str = "") -> Any:
    """Make an object of a schema from plain values; `prefix`: the dotted key that has them.

    Raises UserError for the first key that is unknown, wrong, or without a value.
    """
    idle: set[str] = set()
    if isinstance(values, Mapping) and "kind" in keys_of(schema):
        idle = idle_keys(schema, values.get("kind", keys_of(schema)["kind"].default))
        values = {name: value for name, value in values.items() if name not in idle}
    return schema(**arguments(schema, values, prefix, idle))


def arguments(
    schema: Any, values: Any, prefix: str = "", idle: Iterable[str] = (), also: Iterable[str] = ()
) -> dict[str, Any]:
    """Convert values to the types of a schema's keys; UserError for the first wrong one.

    `idle`: keys that do not count. `also`: other names that a misspelling may have meant.
    """
    keys = {name: declared for name, declared in keys_of(schema).items() if name not in idle}
    if not isinstance(values, Mapping):
        raise UserError(f"{prefix}={values}: expected keys and values, of {', '.join(keys)}")
    for name in values:
        if name not in keys:
            meant = suggest(str(name), [*keys, *also])
            raise UserError(f"{join_key(prefix, name)}: no such key{meant}")
    for name, declared in keys.items():
        if values.get(name, declared.default) in (..., MANDATORY):
            dotted = join_key(prefix, name)
            raise UserError(f"{dotted}: has no value; give {dotted}=...")
    return {n: fit(keys[n].kind, value, join_key(prefix, n)) for n, value in values.items()}


def fit(kind: Any, value: Any, name: str) -> Any:
    """Convert a value to its type; UserError if it does not fit."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bare, *rules = inner
        fitted = fit(bare, value, name)
        for rule in rules:
            if fitted is not None and (why := rule.refusal(fitted)):
                raise UserError(f"{name}={value}: {why}")
        return fitted
    if NoneType in inner:
        return None if value is None else fit(without_none(kind), value, name)
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in inner):
            raise UserError(f"{name}={value}: choose one of {', '.join(map(to_yaml, inner))}")
        return value
    if origin is list and isinstance(value, list | tuple):
        return [fit(inner[0], each, name) for each in value]
    if origin is dict and isinstance(value, Mapping):
        return {str(n): fit(inner[1], each, join_key(name, n)) for n, each in value.items()}
    if is_dataclass(kind):
        return read(kind, value, name)
    expected = origin or kind
    if type(value) is float and not math.isfinite(value):
        raise UserError(f"{name}={value}: expected a finite number")
    if type(value) in (int, float) and abs(value) > LARGEST:
        raise UserError(f"{name}={value}: must be at most {LARGEST}")
    if expected is float and type(value) is int:
        value = float(value)
    if expected is not Any and type(value) is not expected:
        raise UserError(f"{name}={value}: expected {EXPECTED.get(expected, expected)}")
    return value


EXPECTED = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text; quote it",
    list: "a list as [a,b]",
    dict: "names with values",
}


def without_none(kind: Any) -> Any:
    """The type T of `T | None`; other types as they are."""
    return (
        next(k for k in get_args(kind) if k is not NoneType) if NoneType in get_args(kind) else kind
    )


def parse(kind: Any, text: str) -> Any:
    """Convert text of a command line to a type; text that does not fit is returned as it is."""
    if NoneType in get_args(kind) and text == "null":
        return None
    bare = without_none(kind)
    bare = get_args(bare)[0] if get_origin(bare) is Annotated else bare
    if bare is bool:
        return {"true": True, "false": False}.get(text, text)
    try:
        return bare(text) if bare in (int, float) else text
    except ValueError:
        return text


def suggest(name: str, choices: Iterable[str]) -> str:
    """Say which name a wrong one may have meant, by its last part, too; or all, if they are few."""
    names = sorted(choices)
    by_last = {other.rpartition(".")[2]: other for other in names}
    last = get_close_matches(name.rpartition(".")[2], by_last, 1)
    match = get_close_matches(name, names, 1) or [by_last[each] for each in last]
    if match:
        return f"; did you mean {match[0]}?"
    return f"; choose one of {', '.join(names)}" if len(names) <= 20 else "; see --help"


def join_key(prefix: str, name: object) -> str:
    """Return the dotted name of a key within another."""
    return f"{prefix}.{name}" if prefix else str(name)


def to_yaml(value: Any) -> str:
    """Write a plain value as in a config file."""
    return (
        str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)
    )


def flatten(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by dotted key; none of an empty mapping."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, join_key(above, name))
        else:
            yield join_key(above, name), value
