"""Options shared by commands that run a model, and decode.KEY=VALUE, the search settings."""

from collections.abc import Sequence
from dataclasses import fields

from nmt.cli.parser import PROCESSES, Parser
from nmt.config import Decode
from nmt.errors import UserError
from nmt.experiments.columns import COLUMNS, parse_columns
from nmt.overrides.near import keys_of, nearest, refuse_duplicates
from nmt.schema import choices_of


def add_running(parser: Parser) -> None:
    """Add --columns (integers parallel to the text), --device and --threads."""
    parser.add_argument(
        "--columns",
        type=parse_columns,
        default={},
        metavar=COLUMNS,
        help="files of integers parallel to the source, for models that need them",
    )
    where = "cpu, cuda, cuda:1, or auto: a GPU if there is one"
    parser.add_argument("--device", default="auto", help=where)
    threads = "CPU threads in total (default: OMP_NUM_THREADS, otherwise all cores)"
    parser.add_argument("--threads", type=PROCESSES, metavar="N", help=threads)


def add_translating(parser: Parser) -> None:
    """Add the options of `add_running`, and --by-sentence and --workers, of all that translate."""
    add_running(parser)
    by_sentence = "segment each sentence of a joined line separately (nmt-recipe testset)"
    parser.add_argument("--by-sentence", action="store_true", help=by_sentence)
    many = "processes that translate, one thread each (default: by threads and length of the text)"
    parser.add_argument("--workers", type=PROCESSES, metavar="N", help=many)


def search_settings_help() -> str:
    """The keys of decode, a line of --help each."""
    lines = []
    for key in fields(Decode):
        choices = f": {', '.join(choices_of(key))}" if choices_of(key) else ""
        lines.append(f"  decode.{key.name:18} {key.metadata['doc']}{choices}")
    return "\n".join(lines)


def decode_overrides(settings: Sequence[str]) -> dict[str, str | None]:
    """`decode.alpha=1` -> {"alpha": "1"}, null -> None; UserError for another key, or one twice."""
    refuse_duplicates(settings)
    changes: dict[str, str | None] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        group, _, key = name.partition(".")
        if group != "decode" or not key:
            raise UserError(
                f"{setting}: a trained model is fixed; only decode.<key>=<value> may change"
            )
        if name not in (known := keys_of([group])):
            raise UserError(f"{setting}: no such key{nearest(name, known)}")
        changes[key] = None if value == "null" else value
    return changes
