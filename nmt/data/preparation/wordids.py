"""The ids of whole words, so that lines become ids without being segmented."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.data.vocab import EOS, Vocabulary

FREQUENT = 2**18  # words of a side whose ids are written
CACHED = 2**20  # ids of other words


def write(
    path: Path, counts: Counter[str], pieces: Mapping[str, Sequence[str]], vocabulary: Vocabulary
) -> None:
    """Write the ids of the most frequent words whose pieces are known."""
    frequent = counts if len(counts) <= FREQUENT else dict(counts.most_common(FREQUENT))
    words = [word for word in frequent if word in pieces]
    ids = vocabulary.ids(chain.from_iterable(map(pieces.__getitem__, words)))[:-1]
    with path.open("wb") as file:
        np.savez(
            file,
            words=np.frombuffer("\n".join(words).encode(), np.uint8),
            ids=np.array(ids, np.uint32),
            lengths=np.fromiter((len(pieces[word]) for word in words), np.int64, len(words)),
        )


class WordIds:
    """Numbers lines by their words: the ids of frequent words are read from a file.

    `make` returns the ids of any other word, which are cached.
    """

    def __init__(self, path: Path, make: Callable[[str], list[int]]) -> None:
        with np.load(path) as arrays:
            words = arrays["words"].tobytes().decode()
            self._frequent = arrays["ids"], arrays["lengths"]
        self._words = words.split("\n") if words else []
        self._make = make
        self._reset()

    def lines(self, text: str) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Return the concatenated ids of lines, each ending in a line feed, and their lengths.

        Words are separated by single spaces. Each line ends in EOS, which its length counts.
        """
        words = text.replace("\n", " \n ").split(" ")
        self._add(set(words))
        which = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        lengths = self._lengths[which]
        ends = np.cumsum(lengths)
        shift = np.repeat(self._starts[which] - ends + lengths, lengths)
        ids = self._ids[np.arange(len(shift)) + shift]
        return ids, np.diff(ends[which == 0], prepend=0)

    def _reset(self) -> None:
        """Load the frequent words alone; a line feed is EOS, and an empty word has no ids."""
        self._numbers = {word: n for n, word in enumerate(("\n", "", *self._words))}
        ids, lengths = self._frequent
        self._ids = np.concatenate((np.array([EOS], np.uint32), ids))
        self._lengths = np.concatenate(([1, 0], lengths))
        self._starts = np.cumsum(self._lengths) - self._lengths

    def _add(self, words: set[str]) -> None:
        """Add words to the cache."""
        if len(self._ids) > len(self._frequent[0]) + CACHED:
            self._reset()
        new = list(words.difference(self._numbers))
        if not new:
            return
        ids = [self._make(word) for word in new]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        starts = len(self._ids) + np.cumsum(lengths) - lengths
        size = len(self._numbers)
        self._numbers.update(zip(new, range(size, size + len(new)), strict=True))
        self._ids = np.concatenate((self._ids, np.fromiter(chain.from_iterable(ids), np.uint32)))
        self._lengths = np.concatenate((self._lengths, lengths))
        self._starts = np.concatenate((self._starts, starts))
