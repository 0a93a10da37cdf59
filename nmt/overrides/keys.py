"""The existing keys and options: an override of any other is refused, with the nearest name."""

import re
from collections.abc import Iterator
from typing import Any

from hydra import compose
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from nmt.config import KINDS, conf_dir
from nmt.errors import UserError
from nmt.overrides.arguments import OF_EVERY_ENTRY, lines_of
from nmt.overrides.near import keys_of, nearest
from nmt.overrides.options import (
    SEARCHPATH,
    Folders,
    chosen_options,
    entries_of,
    knobs_of,
    options_of,
    refuse_hidden,
    values_of,
)
from nmt.overrides.tables import RunKeys
from nmt.schema import keys_in

SETTINGS = ("seed", "encoding", *KINDS)  # the keys of a composed config that make up an experiment
RUN = tuple(keys_in(RunKeys))  # its directory
ROOT = "train"  # the config that all others are composed into


def check(overrides: list[Override], folders: Folders) -> None:
    """Raise UserError for the first override of one run that Hydra takes and that does not fit."""
    for o in overrides:
        if o.is_delete() and o.key_or_group in (*SETTINGS, *RUN):
            key = o.key_or_group
            raise UserError(f"{o.input_line}: every run has one; choose it by {key}=...")
        if o.key_or_group.startswith(("hydra.run.", "hydra.output_subdir")):
            raise UserError(f"{o.input_line}: not used; a run lies in runs=DIR, as name=NAME")
        if o.package is not None:
            raise UserError(f"{o.input_line}: no key or group with @; see --help")
    check_options(overrides, folders)
    if any(o.is_add() or o.is_force_add() for o in overrides):
        check_keys(overrides, folders)


def check_keys(overrides: list[Override], folders: Folders) -> None:
    """Raise UserError for the first override of a key that is not there.

    Hydra refuses it, too, unless the override adds; but it does not name the nearest key. To know
    all keys takes as long as to compose a run.
    """
    groups = [o for o in overrides if is_group(o.key_or_group)]
    elsewhere = [o for o in overrides if o.key_or_group.startswith(SEARCHPATH)]
    cfg = compose(ROOT, overrides=lines_of([*elsewhere, *groups]))
    known = frozenset(_keys_of(OmegaConf.to_container(cfg, resolve=False)))
    _check_entries(overrides, known)
    for o in overrides:
        if not o.key_or_group.startswith("hydra") and o not in groups:
            _check_key(o, known, folders)


def _check_key(override: Override, known: frozenset[str], folders: Folders) -> None:
    key, line = override.key_or_group, str(override.input_line)
    adds = override.is_add() or override.is_force_add()
    if override.is_add() and key in known:
        raise UserError(f"{line}: has a value already; write {line[1:]}")
    inner = "." in key and key.split(".")[0] in {name.split(".")[0] for name in known}
    if key not in known and not (adds and inner):  # keys of the root belong to encodings
        raise UserError(_unknown(key, line, known, folders))


def _check_entries(overrides: list[Override], known: frozenset[str]) -> None:
    """Refuse a key of an encoding that is not chosen: to add the key would add the encoding."""
    keys = {*known, *(o.key_or_group for o in overrides if o.is_add())}
    chosen = [entry[1] for key in keys if (entry := re.fullmatch(r"encoding\.(\w+)", key))]
    for o in overrides:
        inner = re.match(r"encoding\.(\w+)\.", o.key_or_group)
        if inner is not None and inner[1] not in chosen:
            line = str(o.input_line).removeprefix("++")  # as `arguments.read` has it
            raise UserError(f"{line}: {inner[1]} is not chosen{nearest(inner[1], chosen)}")


def is_group(key: str) -> bool:
    """Whether a key is a group of options, a folder of conf/."""
    return (conf_dir() / key).is_dir()


def _keys_of(values: Any, prefix: str = "") -> Iterator[str]:
    """All dotted keys of a plain config, inner ones included."""
    for key, inner in values.items():
        yield f"{prefix}{key}"
        if isinstance(inner, dict):
            yield from _keys_of(inner, f"{prefix}{key}.")


def check_options(overrides: list[Override], folders: Folders) -> None:
    """Raise UserError for an option that is not there, or not beside another of its group."""
    typed = {o.key_or_group for o in overrides}
    for o in overrides:
        if is_group(o.key_or_group):
            _check_option(o, typed, folders)


def _check_option(override: Override, typed: set[str], folders: Folders) -> None:
    group, value, line = override.key_or_group, override.value(), str(override.input_line)
    if line.startswith("+"):
        raise UserError(f"{line}: a group needs no +; write {line.lstrip('+')}")
    if value in ([], "") or (value is None and not override.is_delete()):
        raise UserError(f"{line}: name an option, or leave {group} out")
    options = chosen_options(override)
    for option in options:
        if option not in (known := options_of(group, folders)):
            raise UserError(f"{group}={option}: no such option{nearest(option, known)}")
        refuse_hidden(group, option, folders)
    entries = [e for o in options if group == "encoding" for e in entries_of(o, folders)]
    if twice := next((e for e in entries if entries.count(e) > 1), None):
        by = dict.fromkeys(o for o in options if twice in entries_of(o, folders))
        advice = f"as part of {' and '.join(by)}; name one" if len(by) > 1 else "name it once"
        raise UserError(f"{line}: {twice} is in it twice, {advice}")
    knobs = [knob for o in options if group == "encoding" for knob in knobs_of(o, folders).items()]
    for key, one in knobs:
        if key not in typed and (other := dict(knobs)[key]) != one:  # Hydra would take the last
            raise UserError(f"{line}: they share {key} ({one}, {other}); give {key}=...")


def _unknown(key: str, line: str, known: frozenset[str], folders: Folders) -> str:
    encodings = options_of("encoding", folders)
    if owners := [e for e in encodings if key in knobs_of(e, folders)]:
        return f"{line}: the chosen encoding has no {key}; these have: {', '.join(owners)}"
    if owners := _owners(key, folders):
        group, _, name = key.partition(".")
        return f"{line}: the chosen {group} has no {name}; give {' or '.join(owners)}"
    if key.startswith(("data.corpora.", "data.columns.")):
        return f"{line}: adds to what there is; write +{line}"
    groups = [d.name for d in conf_dir().iterdir() if d.is_dir()]
    knobs = {k for e in encodings for k in knobs_of(e, folders)}
    entries = [name for name in known if re.fullmatch(r"encoding\.\w+", name)]
    common = {f"{entry}.{name}" for entry in entries for name in OF_EVERY_ENTRY}
    hint = nearest(key, {*known, *knobs, *groups, *keys_of(KINDS), *common}, listed=False)
    return f"{line}: no key {key!r}{hint}"


def _owners(key: str, folders: Folders) -> list[str]:
    """The options whose kind declares a key, as `data=files` for data.train_source."""
    group, _, name = key.partition(".")
    kinds = [kind for kind, schema in KINDS.get(group, {}).items() if name in keys_in(schema)]
    options = options_of(group, folders)
    owners = [o for o in options if values_of(group, o, folders).get("kind") in kinds]
    return [f"{group}={option}" for option in owners]
