"""What commands share that run a model: their options, and decode.KEY=VALUE, how it searches."""

import re
from dataclasses import Field, fields
from typing import Any

from nmt.cli.parser import PROCESSES, Parser
from nmt.config import Decode
from nmt.errors import UserError
from nmt.experiments.columns import COLUMNS, columns_named
from nmt.overrides.near import keys_of, nearest
from nmt.schema import choices_of

KEYS = fields(Decode)
BY_SENTENCE = "segment each sentence of a joined line separately (nmt-recipe testset)"
WORKERS = "processes that translate, one thread each (default: by threads and length of the text)"
SETTING = re.compile(r"[\w.+~]+=")  # a file of such a name is still ./a=b


def add_running(parser: Parser) -> None:
    """Add --columns, what a model reads beside the text, and --device, --threads, where it runs."""
    parser.add_argument(
        "--columns",
        type=columns_named,
        default={},
        metavar=COLUMNS,
        help="files of integers parallel to the source, for models that need them",
    )
    where = "cpu, cuda, cuda:1, or auto: a GPU if there is one"
    parser.add_argument("--device", default="auto", help=where)
    threads = "CPU threads in total (default: OMP_NUM_THREADS, otherwise all cores)"
    parser.add_argument("--threads", type=PROCESSES, metavar="N", help=threads)


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
    if name not in (known := keys_of([group])):
        raise UserError(f"{argument}: no such key{nearest(name, known)}")
    return key, value
