"""Pieces to ids and back."""

import re
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from nmt.errors import Exit, UserError, visible

PAD = 0  # fills rows up on the right
BOS = 1  # starts each row of a target
EOS = 2  # ends each row of a source
UNK = 3
SPECIALS = 4  # ids below are not pieces
UNKNOWN = "<unk>"
END = "</s>"  # the end of a sentence among pieces
# also what is normalised away, which other toolkits' models have, but nothing that moves a cursor
_ANY = re.compile("[^\0\b\n\r\x1b\x7f\ud800-\udfff]+")


class Vocabulary:
    """Numbers the pieces of one side; the first four ids are special."""

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = list(pieces)
        # a piece of the text may look like "<unk>": specials are ids here, never strings
        self._ids = {piece: number for number, piece in enumerate(self._pieces, start=SPECIALS)}

    def __len__(self) -> int:
        return SPECIALS + len(self._pieces)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Number the pieces, UNK for an unknown one, and end with EOS."""
        numbers = list(map(self._ids.get, pieces, repeat(UNK)))
        numbers.append(EOS)
        return numbers

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces before the first EOS, without PAD and BOS, UNK as `<unk>`."""
        pieces = []
        for number in ids:
            if number == EOS:
                break
            if number == UNK:
                pieces.append(UNKNOWN)
            elif number >= SPECIALS:
                pieces.append(self._pieces[number - SPECIALS])
        return pieces

    def to_json(self) -> list[str]:
        """Return the pieces in the order of their ids, without the special ones."""
        return self._pieces

    @classmethod
    def from_json(cls, value: Any) -> "Vocabulary":
        """Build the vocabulary again; UserError (65) if the value is not from `to_json`."""
        return cls(check_pieces(value, "vocabulary", _ANY.fullmatch))


def is_piece(text: str) -> bool:
    """Whether a text may be a piece: none of normalised text has white space or what is unseen."""
    return text.split() == [text] and visible(text) == text


def check_pieces(value: Any, where: str, accepts: Callable[[str], Any] = is_piece) -> list[str]:
    """Return a list of different pieces; UserError (65) for anything else."""
    is_list = isinstance(value, list) and all(isinstance(p, str) and accepts(p) for p in value)
    if not is_list or len(set(value)) != len(value):
        raise damage_error(where, "expected a list of pieces, all different")
    return value


def damage_error(where: str, problem: str) -> UserError:
    return UserError(f"{where}: {problem}; the file is damaged, or no file of nmt", Exit.DATA)
