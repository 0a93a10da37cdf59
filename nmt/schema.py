"""Dataclasses as schemas of plain values: what each key means, and which values it may take.

`read` makes an object of a schema from what a config or file holds; of the first key that does not
fit, it says in one line where it stands, what is wrong, and what is expected.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import Field, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_origin

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.errors import UserError

LARGEST = 2**31 - 1  # of all integers; a product of two of them fits into 64 bits

T = TypeVar("T")


def knob(
    doc: str,
    *,
    choices: tuple[Any, ...] = (),
    least: float | None = None,
    most: float | None = None,
    of: type | None = None,
    check: Callable[[str, Any], None] | None = None,
    absent: Any = ...,
) -> Any:
    """Declare a key: what it means, and which values it may take (bounds included).

    `absent`: what files without the key mean, such as models from before there was one.
    `of`: the key is a mapping of names to values of this schema. `check(where, value)` raises
    UserError for what the type cannot say. Bounds of a list are those of its numbers.
    """
    metadata = {"doc": doc, "choices": choices, "least": least, "most": most}
    return field(metadata={**metadata, "of": of, "check": check, "absent": absent})


def keys_in(schema: type) -> list[str]:
    """The keys that a schema declares, in order."""
    return [spec.name for spec in fields(schema)]


def flattened(schema: type, above: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Dotted key and declaration of each key of a schema, and of the schemas below it.

    NAME stands for any name in a mapping.
    """
    for spec in fields(schema):
        key = _below(above, spec.name)
        if is_dataclass(spec.type):
            yield from flattened(cast(type, spec.type), key)
            continue
        yield key, spec
        if spec.metadata["of"]:
            yield from flattened(spec.metadata["of"], f"{key}.NAME")


def flat(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested mappings by dotted key; none of an empty mapping."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, _below(above, name))
        else:
            yield _below(above, name), value


def choices_of(spec: Field[Any]) -> list[str]:
    """The values that a key may take, as YAML has them; empty if it is not a choice."""
    choices = spec.metadata["choices"]
    return [str(c).lower() if isinstance(c, bool) else str(c) for c in choices]


def completed(schema: type, values: dict[str, Any]) -> dict[str, Any]:
    """The values, and for keys that are absent the value that their absence means."""
    known = {spec.name: spec.metadata["absent"] for spec in fields(schema)}
    absent = {key: value for key, value in known.items() if value is not ...}
    stated = {key: v for key, v in values.items() if not (key in absent and v == MISSING)}
    for spec in fields(schema):
        if (inner := spec.metadata["of"]) and isinstance(named := stated.get(spec.name), dict):
            stated[spec.name] = {
                name: completed(inner, value) if isinstance(value, dict) else value
                for name, value in named.items()
            }
    return {**absent, **stated}


def read(schema: type[T], values: Any, where: str = "") -> T:
    """Make an object of the schema from the plain values below the key `where` ("": the root).

    Raises UserError that names the first key that is wrong or missing.
    """
    declared: Any = schema  # a dataclass, as those of nmt.config
    specs = {spec.name: spec for spec in fields(declared)}
    if not isinstance(values, dict):
        raise UserError(f"{where}={values}: expected {_listed(list(specs))}")
    if extra := sorted(set(values) - set(specs), key=str):
        close = get_close_matches(str(extra[0]), list(specs), 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        key = _below(where, extra[0])
        raise UserError(f"{key}: no such key in {where or 'the config'}{meant}")
    values = completed(schema, values)
    typed = deepcopy(_empty(declared))
    try:
        typed.merge_with(values)  # at once: a merge takes a large part of a millisecond
    except OmegaConfBaseException:
        for key, value in values.items():
            _merge(typed, specs[key], _below(where, key), value)
        raise AssertionError("no single key is wrong") from None
    if missing := sorted(str(key) for key in OmegaConf.missing_keys(typed)):
        key = _below(where, missing[0])
        raise UserError(f"{key}: has no value; give {key}=...")
    for key, value in values.items():  # single keys, before __post_init__ compares several
        _check(specs[key], _below(where, key), value, typed[key])
    typed_object: Any = OmegaConf.to_object(typed)
    return typed_object


@cache
def _empty(schema: type) -> DictConfig:
    """A schema without values, to be copied: to make it anew takes three times as long."""
    empty: DictConfig = OmegaConf.structured(schema)
    return empty


def _below(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _merge(section: DictConfig, spec: Field[Any], key: str, value: Any) -> None:
    """Set one value of a section; UserError if its type is wrong, or that of a key below it."""
    inner: Any = spec.type
    _check_inner(spec, key, value)
    try:
        section.merge_with({spec.name: value})
    except OmegaConfBaseException:
        choices = ", ".join(choices_of(spec))
        wanted = f"choose one of {choices}" if choices else f"expected {_wanted(inner)}"
        raise UserError(f"{key}={value}: {wanted}") from None


def _check(spec: Field[Any], key: str, value: Any, typed: Any) -> None:
    """Check a value, plain and typed, for what OmegaConf's types leave open."""
    where = f"{key}={value}"
    inner: Any = spec.type
    _check_inner(spec, key, value)
    if inner is bool and isinstance(value, (int, float)) and value not in (0, 1):
        raise UserError(f"{where}: expected {_wanted(bool)}")
    if typed is None:
        return
    if (choices := spec.metadata["choices"]) and typed not in choices:
        raise UserError(f"{where}: choose one of {', '.join(choices_of(spec))}")
    for number in list(typed) if get_origin(inner) is list else [typed]:
        _check_number(spec, where, number)


def _check_inner(spec: Field[Any], key: str, value: Any) -> None:
    """Check the keys below a key, and run the check that its declaration names."""
    inner: Any = spec.type
    if is_dataclass(spec.type):
        read(inner, value, key)
    if spec.metadata["of"] is not None:
        if not isinstance(value, dict):
            raise UserError(f"{key}={value}: expected a mapping of names to keys and values")
        for name, inner_values in value.items():
            read(spec.metadata["of"], inner_values, f"{key}.{name}")
    if spec.metadata["check"] is not None:
        spec.metadata["check"](key, value)


def _check_number(spec: Field[Any], where: str, number: object) -> None:
    """Raise UserError for a number out of bounds; what is no number passes."""
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        return
    least, most = spec.metadata["least"], spec.metadata["most"]
    if not number == number or number in (float("inf"), float("-inf")):
        raise UserError(f"{where}: expected a finite number")
    low = least is not None and number < least
    high = number > most if most is not None else isinstance(number, int) and number > LARGEST
    if (low or high) and least is not None and most is not None:
        raise UserError(f"{where}: must be from {least} to {most}")
    if low:
        raise UserError(f"{where}: must be at least {least}")
    if high:
        raise UserError(f"{where}: must be at most {LARGEST if most is None else most}")


def _wanted(kind: Any) -> str:
    """A type as an error names it."""
    if kind is bool:
        return "true or false"
    if get_origin(kind) is list:
        return {int: "a list as [1,2]", str: "a list as [a,b]"}[get_args(kind)[0]]
    return getattr(kind, "__name__", str(kind)).replace("int", "integer")
