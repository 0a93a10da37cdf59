"""The words decode.KEY=VALUE, which change how a trained model searches and nothing else."""

import re
from dataclasses import Field, fields
from difflib import get_close_matches
from typing import Any

from nmt.config import Decode, Settings, freeze, thaw
from nmt.errors import UserError

KEYS = fields(Decode)
SETTING = re.compile(r"[\w.+~]+=")  # a file of such a name is still ./a=b


def described(key: Field[Any]) -> str:
    """One line of --help about a key of decode."""
    choices = ", ".join(key.metadata["choices"])
    return f"  decode.{key.name:18} {key.metadata['doc']}" + (f": {choices}" if choices else "")


def change_of(word: str) -> tuple[str, str]:
    """`decode.alpha=1` -> ("alpha", "1"); raises UserError for any other key."""
    name, _, value = word.partition("=")
    group, _, key = name.partition(".")
    if group != "decode" or not key:
        raise UserError(f"{word}: a trained model is fixed; only decode.<key>=<value> may change")
    known = [f.name for f in KEYS]
    if key not in known:
        near = get_close_matches(key, known, n=1)
        advice = f"did you mean decode.{near[0]}?" if near else f"known are {', '.join(known)}"
        raise UserError(f"{word}: no such key; {advice}")
    return key, value


def changed(settings: Settings, changes: dict[str, str]) -> Settings:
    """The settings of a model with other values under decode, checked as all are."""
    plain = freeze(settings)
    return thaw({**plain, "decode": {**plain["decode"], **changes}})
