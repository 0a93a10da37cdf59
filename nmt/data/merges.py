"""Byte pair encoding is learnt as subword-nmt learns it, merge for merge, but sooner.

subword-nmt looks through all pairs for each merge, and copies all of them deeply whenever it has
used up the frequent ones. Here the pairs wait in order of their frequency. What counts the pairs
is subword-nmt's own; so are the limits below which it sets pairs aside, since a pair that is set
aside and then gains may be counted too low, and another order of merges would come of it.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from subword_nmt.learn_bpe import get_pair_statistics, get_vocabulary, update_pair_statistics

Pair = tuple[str, str]
Word = tuple[tuple[str, ...], int]  # symbols, frequency
Counts = defaultdict[Pair, int]
Indices = defaultdict[Pair, defaultdict[int, int]]  # pair -> number of a word -> occurrences


END = "</w>"  # marks the last symbol of a word


class Learnt(NamedTuple):
    """What came of a dictionary."""

    merges: list[str]  # two symbols each, with a space between
    words: list[tuple[str, ...]]  # the symbols that subword-nmt makes of a word by these merges


def learn(dictionary: Iterable[str], merges: int, min_frequency: int) -> Learnt:
    """Learn at most so many merges from lines of a word and its frequency.

    No pair rarer than `min_frequency`, 1 or more, is merged. ValueError if there is no pair.
    The words are those of the dictionary, but for a few that must be segmented to be known.
    """
    words: list[Word] = [
        ((*word[:-1], word[-1] + END), count)
        for word, count in get_vocabulary(dictionary, is_dict=True).items()
    ]
    words.sort(key=lambda word: word[1], reverse=True)
    counts: Counts
    indices: Indices
    counts, indices = get_pair_statistics(words)
    every, queue = counts.copy(), _Queue(counts)
    limit = max(counts.values()) / 10
    found: list[str] = []
    done: set[Pair] = set()
    odd: set[int] = set()  # words in which a pair is back whose turn is over
    for number in range(merges):
        best = queue.greatest()
        if best is None or (number and counts[best] < limit):  # those set aside may be greater
            _set_aside(counts, every, limit)
            counts = every.copy()
            queue = _Queue(counts)
            best = queue.greatest()
            if best is None:
                break
            limit = counts[best] * number / (number + 10_000)
            _set_aside(counts, every, limit)
        if counts[best] < min_frequency:
            break
        found.append(" ".join(best))
        change: Counts = defaultdict(int)
        update_pair_statistics(best, _merge(best, words, indices), change, indices)
        for pair, more in change.items():
            counts[pair] += more
            queue.add(pair)
            if pair in done:
                odd.update(indices[pair])
        counts[best] = 0
        done.add(best)
        if not number % 100:
            _set_aside(counts, every, limit)
    return Learnt(found, [word for n, (word, _) in enumerate(words) if n not in odd])


class _Queue:
    """Gives the most frequent pair, of equal ones the last by characters, while counts change."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._alike: dict[int, list[Pair]] = {}  # all pairs that have or had this frequency
        self._sorted = 0  # the one frequency whose pairs are in order
        for pair, count in counts.items():
            if count > 0:
                self._alike.setdefault(count, []).append(pair)
        self._frequencies = [-count for count in self._alike]  # a heap: its least is in front
        heapify(self._frequencies)

    def add(self, pair: Pair) -> None:
        """Note that the count of a pair is another."""
        count = self._counts[pair]
        if count < 1:
            return
        if count == self._sorted:
            insort(self._alike[count], pair)
        elif count in self._alike:
            self._alike[count].append(pair)
        else:
            self._alike[count] = [pair]
            heappush(self._frequencies, -count)

    def greatest(self) -> Pair | None:
        """Give the pair, or None if no pair occurs."""
        while self._frequencies:
            count = -self._frequencies[0]
            alike = self._alike[count]
            if count != self._sorted:
                alike.sort()
                self._sorted = count
            while alike:
                if self._counts.get(alike[-1]) == count:
                    return alike[-1]
                alike.pop()  # its count has changed
            del self._alike[count]
            heappop(self._frequencies)
            self._sorted = 0
        return None


def _set_aside(counts: Counts, every: Counts, limit: float) -> None:
    """Take the pairs below the limit out of `counts`; `every` notes how often they occur."""
    for pair in [pair for pair, count in counts.items() if count < limit]:
        count = counts.pop(pair)
        every[pair] = every[pair] + count if count < 0 else count  # below 0: a change


def _merge(
    best: Pair, words: list[Word], indices: Indices
) -> list[tuple[int, tuple[str, ...], tuple[str, ...], int]]:
    """Merge a pair in all words; give each one's number, new symbols, old ones and frequency."""
    first, second = best
    both, changed = first + second, []
    for number, occurrences in indices[best].items():
        if occurrences < 1:
            continue
        old, count = words[number]
        symbols, place = list(old), -1
        while (place := _find(symbols, first, place + 1)) >= 0:
            if symbols[place + 1 : place + 2] == [second]:
                symbols[place : place + 2] = [both]
        new = tuple(symbols)
        words[number] = new, count
        changed.append((number, new, old, count))
    return changed


def _find(symbols: list[str], symbol: str, start: int) -> int:
    """Give where the symbol stands from `start` on, or -1."""
    try:
        return symbols.index(symbol, start)
    except ValueError:
        return -1
