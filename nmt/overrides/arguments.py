"""A command line of flags and overrides; Hydra's grammar reads each override here, once."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from nmt.config import KINDS
from nmt.errors import UserError
from nmt.overrides.near import absent_option
from nmt.overrides.options import beside
from nmt.overrides.quoting import taken, unreadable

MULTIRUN = {"-m", "--multirun"}
_LONG = {  # flags of Hydra, those that nmt-train has
    "-m": "--multirun",
    "-c": "--cfg",
    "-i": "--info",
    "-p": "--package",
    "-sc": "--shell-completion",
}
_FLAGS = (*_LONG, *_LONG.values(), "--resolve", "--hydra-help")
_ONE_OF = ("--multirun", "--cfg", "--info", "--shell-completion")
_WITH_VALUE = ("--cfg", "-c", "--info", "-i", "--package", "-p", "--shell-completion", "-sc")
_VALUES = {
    "--cfg": "job|hydra|all",
    "--info": "|all|config|defaults|defaults-tree|plugins|searchpath",
    "--shell-completion": "install=.*|uninstall=.*|query=.*",
}
_OF_EVERY_ENTRY = re.compile(r"encoding\.\w+\.(where|at)=")  # keys that its file need not have


class Arguments(NamedTuple):
    """What was typed behind nmt-train or nmt-prepare."""

    flags: list[str]  # of Hydra, with their values; none is ours
    overrides: list[Override]

    @property
    def multirun(self) -> bool:
        """Whether a sweep is asked for, by -m or hydra.mode=MULTIRUN."""
        modes = (o.value() for o in self.overrides if o.key_or_group == "hydra.mode")
        return bool(MULTIRUN & set(self.flags)) or "MULTIRUN" in modes

    @property
    def for_hydra(self) -> bool:
        """Whether there are flags that Hydra alone knows, such as --cfg."""
        return bool(set(self.flags) - MULTIRUN)

    @property
    def shows_config(self) -> bool:
        """Whether the config is to be shown, and nothing done."""
        return bool({"--cfg", "-c", "--info", "-i"} & set(self.flags))


def parse(argv: Sequence[str]) -> Arguments:
    """Read a command line; raises UserError for what is neither flag nor override."""
    flags, lines = split(argv)
    _check_flags(flags)
    return Arguments(flags, read(lines))


def _check_flags(flags: Sequence[str]) -> None:
    """Raise UserError for a value that a flag cannot have, and for flags that do not go together.

    Hydra would answer with its whole usage, or with a traceback.
    """
    seen: dict[str, str] = {}
    rest = list(flags)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        name = _LONG.get(flag, flag)
        if not equals and name in _LONG.values() and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        if name in _VALUES and not re.fullmatch(_VALUES[name], value):
            choices = _VALUES[name].strip("|").replace("|", ", ").replace(".*", "SHELL")
            raise UserError(f"{f'{flag} {value}'.strip()}: choose one of {choices}")
        seen[name] = flag
    shown = [seen[name] for name in _ONE_OF if name in seen]
    if "--cfg" in seen and "--multirun" in seen:
        shown.remove(seen["--multirun"])
    if "--multirun" in seen and len(shown) > 1 and "--cfg" not in seen:
        raise UserError(
            f"{shown[0]} {shown[1]}: shows one run at a time; leave {shown[0]} out, and give each "
            "key one value"
        )
    if len(shown) > 1:
        raise UserError(f"{shown[0]} {shown[1]}: give one of the two")
    if "--resolve" in seen and "--cfg" not in seen:
        raise UserError("--resolve: belongs to --cfg; write --cfg job --resolve")


def read(lines: Iterable[str]) -> list[Override]:
    """Read overrides; UserError says which of them Hydra cannot read, and what to write instead."""
    listed = [f"++{each}" if _OF_EVERY_ENTRY.match(each) else each for each in lines]
    try:
        return OverridesParser.create().parse_overrides(listed)
    except HydraException:
        raise UserError(unreadable(listed)) from None


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags, and overrides as Hydra takes them: texts quoted, --config-dir one of them."""
    flags: list[str] = []
    lines: list[str] = []
    folders: list[str] = []
    sweep = bool(MULTIRUN & set(argv))
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        if argument in ("--config-dir", "-cd"):
            folders.append(rest.pop(0) if rest else "")
        elif argument.startswith("-"):
            if argument.partition("=")[0] not in _FLAGS:
                known = [*_FLAGS, "--config-dir", "--help", "--version"]
                raise UserError(absent_option(argument, known, groups=KINDS))
            flags.append(argument)
        elif flags and flags[-1] in _WITH_VALUE:
            flags.append(argument)
        elif argument.startswith("="):
            raise UserError(f"{argument}: not readable as key=value; see --help")
        elif "=" in argument or argument.startswith("~"):
            lines.append(taken(argument, sweep))
        else:
            raise UserError(f"{argument}: expected key=value; see --help")
    return flags, [*lines, *beside(*folders)]


def lines_of(overrides: Iterable[Override]) -> list[str]:
    """Overrides as Hydra and a command line take them."""
    return [str(each.input_line) for each in overrides]
