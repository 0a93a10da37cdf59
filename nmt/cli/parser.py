"""What all commands share in reading their arguments: one line for wrong ones, and --version."""

import argparse
from collections.abc import Iterable
from typing import Any, NoReturn

from nmt import __version__
from nmt.errors import UserError


class Parser(argparse.ArgumentParser):
    """Reads options; raises UserError for wrong ones, SystemExit(0) after --help and --version."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        ours = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(*args, **{**settings, **ours})
        self.add_argument("--version", action="version", version=f"nmt {__version__}")

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed in one line."""
        raise UserError(f"{message}; see --help")


def once(overrides: Iterable[str]) -> None:
    """Raise UserError for overrides (KEY=VALUE) that name one key twice."""
    given: dict[str, str] = {}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key in given:
            raise UserError(f"{override}: {given[key]} is given, too; give {key} once")
        given[key] = override


def positive(text: str) -> int:
    """The type of an option that takes a number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number
