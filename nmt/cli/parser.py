"""The argument parser of all commands: one line for wrong arguments, and --version."""

import argparse
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn

from nmt import __version__
from nmt.errors import UserError
from nmt.evaluation.options import LEAST_SAMPLES


class Parser(argparse.ArgumentParser):
    """Reads options; raises UserError for wrong ones, SystemExit(0) after --help and --version."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        ours = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(*args, **{**settings, **ours})
        self.add_argument("--version", action="version", version=f"nmt {__version__}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an option that is not there before arguments are missed or counted."""
        options = [option for action in self._actions for option in action.option_strings]
        for argument in takewhile(lambda a: a != "--", args):
            if _is_option(argument) and not _is_known(argument, options):
                option = argument.partition("=")[0]
                close = get_close_matches(option, options, 1)
                hint = f"did you mean {close[0]}?" if close else "see --help"
                raise UserError(f"{option}: no such option; {hint}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed in one line."""
        raise UserError(f"{message}; see --help")


def _is_option(argument: str) -> bool:
    """Whether argparse takes an argument for an option: no text, stdin or negative number."""
    return re.fullmatch(r"-(?!\d*\.?\d+$)\S.*", argument, re.S) is not None and " " not in argument


def _is_known(argument: str, options: Sequence[str]) -> bool:
    """Whether there is such an option; the value of a short one may follow without a space."""
    name = argument.partition("=")[0]
    return name in options or (not name.startswith("--") and name[:2] in options)


def integer(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """The type of an option that takes an integer, bounds included."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]+", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: expected an integer from {least} to {most}")
        return int(text)

    return number


SAMPLES = integer(LEAST_SAMPLES, 100_000)  # of the bootstrap
PROCESSES = integer(1, 1024)  # or threads


def two(text: str) -> tuple[str, str]:
    """The type of an option with the names of two languages, SOURCE,TARGET."""
    source, _, target = text.partition(",")
    if not (source and target) or "," in target:
        raise argparse.ArgumentTypeError(f"{text}: expected two names, as German,English")
    return source, target
