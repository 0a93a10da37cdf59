"""What was made of a word is kept for the next time that the word occurs."""

from collections.abc import Callable
from typing import TypeVar

Word = TypeVar("Word", str, tuple[str, ...], tuple[int, ...])  # characters, symbols, ids of pieces
Made = TypeVar("Made")


class WordCache(dict[Word, Made]):
    """Makes what is not there yet; full, it keeps what came first, which is mostly frequent."""

    def __init__(self, make: Callable[[Word], Made], most: int, longest: int) -> None:
        """`most`: words to keep; `longest`: characters, symbols or pieces of such a word."""
        super().__init__()
        self._make: Callable[[Word], Made] = make
        self._most, self._longest = most, longest

    def __missing__(self, word: Word) -> Made:
        made = self._make(word)
        if len(self) < self._most and len(word) <= self._longest:
            self[word] = made
        return made
