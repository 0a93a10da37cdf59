"""Options of all commands: one line for wrong ones, --version, and decode.KEY=VALUE."""

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from textwrap import wrap
from typing import Any, Literal, NoReturn, get_args, get_origin

from nmt import __version__
from nmt.config import check
from nmt.config.settings import Decode
from nmt.errors import UserError
from nmt.evaluation.options import LEAST_SAMPLES

COLUMNS = "NAME=FILE,..."  # what --columns takes
SEARCH = "decode.KEY=VALUE changes the search, as decode.beam_size=8 does; --help all has all keys."
WIDTH = 100  # characters of a line of help
HelpFormatter = argparse.RawDescriptionHelpFormatter


class _ShowHelp(argparse.Action):
    """--help: the options, on one screen; --help all: the manual, too."""

    def __call__(self, parser: Any, _: Any, topic: Any, option: Any = None) -> None:
        parser.epilog = parser.manual if topic == "all" else None
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Reads options; raises UserError for wrong ones, SystemExit(0) after --help and --version."""

    def __init__(
        self,
        prog: str,
        usage: str | None = None,
        about: str | None = None,
        manual: str = "",
        search: bool = False,
    ) -> None:
        """`search`: decode.KEY=VALUE is among the arguments."""
        super().__init__(
            prog=prog,
            usage=usage,
            description=f"{about}{SEARCH}" if search else about,
            formatter_class=partial(HelpFormatter, max_help_position=32, width=WIDTH),
            allow_abbrev=False,
            add_help=False,
            conflict_handler="resolve",  # nmt-train has a --help of its own
        )
        self.manual = manual + _describe_search() * search
        self.add_argument(
            "-h",
            "--help",
            action=_ShowHelp,
            nargs="?",
            choices=["all"],
            metavar="all",
            help="this page; all: the whole manual",
        )
        self.add_argument("--version", action="version", version=f"nmt {__version__}")

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed in one line."""
        options = [option for action in self._actions for option in action.option_strings]
        first = message.removeprefix("unrecognized arguments: ").split(" ")[0].partition("=")[0]
        close = get_close_matches(first, options, 1)
        raise UserError(f"{message}; {f'did you mean {close[0]}?' if close else 'see --help'}")


def integer(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """The type of an option that takes an integer, bounds included."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected an integer from {least} to {most}")
        return int(text)

    return number


SAMPLES = integer(LEAST_SAMPLES, 100_000)  # of the bootstrap
PROCESSES = integer(1, 1024)  # or threads


def name_pair(text: str) -> tuple[str, str]:
    """The type of an option that names two languages, SOURCE,TARGET."""
    source, _, target = text.partition(",")
    if not (source and target) or "," in target:
        raise argparse.ArgumentTypeError(f"{text}: expected two names, as German,English")
    return source, target


def parse_columns(argument: str) -> dict[str, str]:
    """`heads=FILE,order=FILE` -> {"heads": FILE, ...}."""
    pairs = [part.partition("=")[::2] for part in argument.split(",")]
    files = dict(pairs)
    if len(files) < len(pairs) or not all(name and path for name, path in pairs):
        raise argparse.ArgumentTypeError(f"{argument}: expected {COLUMNS}, each name once")
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


def describe_key(schema: Any, name: str) -> str:
    """The meaning of a key of a dataclass, and its choices."""
    declared = check.keys_of(schema)[name]
    kind = check.without_none(declared.kind)
    condition = f"kind={'|'.join(declared.only)}: " if declared.only else ""
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    listed = f" ({' | '.join(map(check.to_yaml, choices))})" if choices else ""
    return f"{condition}{declared.doc}{listed}"


def _describe_search() -> str:
    """The keys of decode, each wrapped behind its name."""
    rows = ["", "Search settings; the default is what each model was trained with:"]
    for name in check.keys_of(Decode):
        start, text = f"  decode.{name:18} ", describe_key(Decode, name)
        rows += wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
    return "\n".join(rows)


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
            raise UserError(
                f"{name}: no such key{check.suggest(name, [f'decode.{k}' for k in keys])}"
            )
        changes[key] = check.parse(keys[key].kind, text)
    return changes
