"""Checks of plain values from JSON: a file may contain anything."""

from collections.abc import Sequence
from typing import Any

from nmt.errors import Exit, UserError, visible


def checked(value: Any, where: str, **types: type) -> dict[str, Any]:
    """Return the mapping if it has just these keys, with values of just these types.

    Raises UserError (65) that names a wrong one.
    """
    actual = {key: type(v) for key, v in value.items()} if isinstance(value, dict) else {}
    if actual != types or not isinstance(value, dict):
        expected = ", ".join(f"{key} ({kind.__name__})" for key, kind in types.items())
        wrong = min((str(key) for key, _ in actual.items() ^ types.items()), default="")
        raise damaged(f"{where}.{wrong[:40]!a}", f"expected a mapping of just {expected}")
    return value


def one_of(value: Any, choices: Sequence[str], where: str) -> str:
    """Return the value if it is among the choices; else UserError (65)."""
    if not isinstance(value, str) or value not in choices:
        raise damaged(where, f"expected one of {', '.join(choices)}")
    return value


def piece_list(value: Any, where: str) -> list[str]:
    """Return a list of distinct, non-empty strings without white space; else UserError (65)."""
    if not isinstance(value, list):
        raise damaged(where, "expected a list")
    for number, piece in enumerate(value):
        if not isinstance(piece, str) or not is_piece(piece):
            problem = f"expected visible text without white space, not {visible(piece, 20)!r}"
            raise damaged(f"{where}[{number}]", problem)
    if len(set(value)) != len(value):
        raise damaged(where, "an entry stands twice")
    return value


def is_piece(text: str) -> bool:
    """Whether a text may be a piece: none of normalised text has white space or what is unseen."""
    return text.split() == [text] and visible(text) == text


def damaged(where: str, problem: str) -> UserError:
    """Make the error for damaged data at `where`."""
    return UserError(f"{where}: {problem}; the file is damaged or not ours", Exit.DATA)
