"""Options shared by commands that run a model, and decode.KEY=VALUE, the search settings."""

from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

from nmt.cli.parser import PROCESSES, Parser
from nmt.config import check
from nmt.config.settings import Decode
from nmt.errors import UserError

COLUMNS = "NAME=FILE,..."  # what --columns takes


def parse_columns(argument: str) -> dict[str, str]:
    """`heads=FILE,order=FILE` -> {"heads": FILE, ...}; raises UserError for anything else."""
    files: dict[str, str] = {}
    for part in argument.split(","):
        name, _, path = part.partition("=")
        if not name or not path or name in files:
            raise UserError(f"--columns {argument}: expected {COLUMNS}, each name once")
        files[name] = path
    return files


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
    """Add the options of `add_running`, and --workers, of all that translate."""
    add_running(parser)
    many = "processes that translate, one thread each (default: by threads and length of the text)"
    parser.add_argument("--workers", type=PROCESSES, metavar="N", help=many)


def search_settings_help() -> str:
    """The keys of decode, a line of --help each."""
    lines = []
    for name, declared in check.keys_of(Decode).items():
        kinds = get_args(declared.kind) if get_origin(declared.kind) is Literal else ()
        choices = f": {', '.join(map(check.yaml, kinds))}" if kinds else ""
        doc = Decode.__dataclass_fields__[name].metadata["doc"]
        lines.append(f"  decode.{name:18} {doc}{choices}")
    return "\n".join(lines)


def decode_overrides(settings: Sequence[str]) -> dict[str, Any]:
    """`decode.alpha=1` -> {"alpha": 1.0}, null -> None; UserError for another key."""
    keys, changes = check.keys_of(Decode), dict[str, Any]()
    for setting in settings:
        name, _, text = setting.partition("=")
        group, _, key = name.partition(".")
        if group != "decode" or not key:
            raise UserError(
                f"{setting}: a trained model is fixed; only decode.<key>=<value> may change"
            )
        if key not in keys:
            known = [f"decode.{known}" for known in keys]
            raise UserError(f"{name}: no such key{check.near(name, known)}")
        changes[key] = check.parse(keys[key].kind, text)
    return changes
