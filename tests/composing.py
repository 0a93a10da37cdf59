"""Settings from arguments, composed once for all tests: Hydra takes longer than most of them.

Both processes of a parallel run share what was composed, in the directory of their temporary files.
"""

import os
import pickle
import re
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt.config import check as schema
from nmt.config.catalog import FAMILIES, entries_of, family_of, options_of, values_of
from nmt.config.compose import experiment_of
from nmt.config.settings import Model, Settings, with_decode
from nmt.encodings.registry import find

BY_COLUMNS = FAMILIES[-2]
SHARED: list[Path] = []  # the directory, once conftest.py knows it


def settings_of(*arguments: str) -> Settings:
    """What `experiment_of` makes of arguments, with less of Hydra.

    model.KEY=VALUE and decode.KEY=VALUE are put in afterwards, an encoding's entries are read from
    its file, and a list of encodings is merged of its members.
    """
    return deepcopy(_settings_of(arguments))


@cache
def _settings_of(arguments: tuple[str, ...]) -> Settings:
    values = [a for a in arguments if a.startswith(("model.", "decode.")) and a.partition("=")[2]]
    rest = [a for a in arguments if a not in values]
    settings = (_of_file(rest[0]) or _merged(rest[0])) if len(rest) == 1 else None
    settings = settings or deepcopy(_composed(*rest))
    if not values:
        return settings
    changed: Any = OmegaConf.to_container(OmegaConf.from_dotlist(values))
    model = {**vars(settings.model), **changed.get("model", {})}
    settings = replace(settings, model=schema.read(Model, model, "model"))
    return with_decode(settings, changed.get("decode", {}))


def _of_file(argument: str) -> Settings | None:
    """Settings of `encoding=a`, if its file sets nothing but entries; None for all else."""
    group, _, option = argument.partition("=")
    if group != "encoding" or option not in options_of(group):
        return None
    values = values_of(group, option)
    if list(values) != ["encoding"]:
        return None
    return replace(deepcopy(_composed()), encoding=deepcopy(entries_of(option)))


def _merged(argument: str) -> Settings | None:
    """Settings of `encoding=[a,b]` from those of a and b; None for what is not as simple."""
    if not re.fullmatch(r"encoding=\[\w+(,\w+)+\]", argument):
        return None
    options = argument.removeprefix("encoding=[").removesuffix("]").split(",")
    if set(options) - set(options_of("encoding")):
        return None
    members = [deepcopy(_settings_of((f"encoding={option}",))) for option in options]
    if any(replace(m, encoding={}) != replace(members[0], encoding={}) for m in members):
        return None
    encoding: dict[str, Any] = {}
    for member in members:
        encoding = merged(encoding, member.encoding)
    return replace(members[0], encoding=encoding)


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Both, as Hydra merges them; the second one decides where both say something."""
    found = dict(one)
    for key, value in other.items():
        old = found.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        found[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return found


@cache
def _composed(*arguments: str) -> Settings:
    if not SHARED:
        return experiment_of(list(arguments)).settings
    path = SHARED[0] / f"{sha256(repr(arguments).encode()).hexdigest()}.settings"
    if path.exists():
        settings: Settings = pickle.loads(path.read_bytes())
        return settings
    settings = experiment_of(list(arguments)).settings
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_bytes(pickle.dumps(settings))
    whole.rename(path)
    return settings


@cache
def representatives() -> tuple[str, ...]:
    """The first encoding of each kind: by the hooks it overrides, and whether it reads columns."""
    first: dict[frozenset[str], str] = {}
    for option in options_of("encoding"):
        first.setdefault(_kind(option), option)
    return tuple(first.values())


@cache
def few_representatives() -> tuple[str, ...]:
    """Those representatives that override a hook, or read columns, as none before them does."""
    seen: set[str] = set()
    few: list[str] = []
    for option in representatives():
        if not few or _kind(option) - seen:
            few.append(option)
            seen |= _kind(option)
    return tuple(few)


def _kind(option: str) -> frozenset[str]:
    entries = entries_of(option).items()
    classes = [find(str(entry.get("use", name))) for name, entry in entries]
    hooks = frozenset(hook for cls in classes for hook in cls.hooks)
    return hooks | {"columns"} if family_of(option) == BY_COLUMNS else hooks


def every_encoding(fast: Collection[str] = ()) -> list[Any]:
    """All encodings as parameters; all but `fast` ones are slow.

    Without any named, those are a few representatives.
    """
    fast = fast or few_representatives()
    return [
        pytest.param(option, marks=[pytest.mark.slow] * (option not in fast))
        for option in options_of("encoding")
    ]
