"""What commands that translate share: decode.KEY=VALUE, which changes how a model searches."""

import re
from dataclasses import Field, fields
from difflib import get_close_matches
from typing import Any

from nmt.config import Decode
from nmt.errors import UserError
from nmt.schema import choices_of

KEYS = fields(Decode)
BY_SENTENCE = "segment each sentence of a joined line apart, by the record of nmt-testset"
WORKERS = "processes that translate, with one thread each (default: as many as pay for the text)"
SETTING = re.compile(r"[\w.+~]+=")  # a file of such a name is still ./a=b


def described(key: Field[Any]) -> str:
    """One line of --help about a key of decode."""
    choices = ", ".join(choices_of(key))
    return f"  decode.{key.name:18} {key.metadata['doc']}" + (f": {choices}" if choices else "")


def change_of(argument: str) -> tuple[str, str]:
    """`decode.alpha=1` -> ("alpha", "1"); raises UserError for any other key."""
    name, _, value = argument.partition("=")
    group, _, key = name.partition(".")
    if group != "decode" or not key:
        raise UserError(
            f"{argument}: a trained model is fixed; only decode.<key>=<value> may change"
        )
    known = [f.name for f in KEYS]
    if key not in known:
        near = get_close_matches(key, known, n=1)
        advice = f"did you mean decode.{near[0]}?" if near else f"known are {', '.join(known)}"
        raise UserError(f"{argument}: no such key; {advice}")
    return key, value
