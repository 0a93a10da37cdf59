"""Overrides as a command line has them; Hydra's grammar reads each of them here, once."""

import re
from collections.abc import Iterable

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from nmt.errors import UserError
from nmt.overrides.quoting import quoted_override, unreadable

OF_EVERY_ENTRY = ("where", "at", "layers", "heads")  # keys of an encoding that no file need have
_ADDED = re.compile(rf"encoding\.\w+\.({'|'.join(OF_EVERY_ENTRY)})=")


def parse(words: Iterable[str], sweep: bool = False) -> list[Override]:
    """Read overrides as they were typed; raises UserError for what is none.

    Texts, such as paths, need no quotes; in a `sweep`, commas part them.
    """
    lines = []
    for word in words:
        if word.startswith("="):
            raise UserError(f"{word}: not readable as key=value; see --help")
        if "=" not in word and not word.startswith("~"):
            raise UserError(f"{word}: expected key=value; see --help")
        lines.append(quoted_override(word, sweep))
    return read(lines)


def read(lines: Iterable[str]) -> list[Override]:
    """Read overrides in Hydra's grammar; UserError says what to write instead."""
    listed = [f"++{line}" if _ADDED.match(line) else line for line in lines]
    try:
        return OverridesParser.create().parse_overrides(listed)
    except HydraException:
        raise UserError(unreadable(listed)) from None


def lines_of(overrides: Iterable[Override]) -> list[str]:
    """Overrides as Hydra and a command line take them."""
    return [str(override.input_line) for override in overrides]
