"""Pieces to ids and back."""

from collections.abc import Iterable
from itertools import repeat
from typing import Any

from nmt.text import json_values

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = 4
UNKNOWN = "<unk>"
END = "</s>"  # the end of a sentence among pieces


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
        return cls(json_values.piece_list(value, "vocabulary"))
