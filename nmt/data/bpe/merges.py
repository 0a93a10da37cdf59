"""Byte pair encoding is learned as subword-nmt learns it, merge for merge, but sooner.

subword-nmt looks through all pairs for each merge, and copies all of them deeply whenever it has
used up the frequent ones. Here the pairs wait in order of their frequency, and `symbols`
counts them as it does. The limits below which it sets pairs aside are its own, since a pair that is
set aside and then gains may be counted too low, and another order of merges would come of it.

Learning 50,000 merges from a million words takes 48 CPU seconds and 1.0 GB, with subword-nmt 816
and 2.3 GB, and the merges are the same. Of the preparation of 1.25 million pairs, which takes two
processes some 70 seconds beside it, that is nine tenths saved (docs/log.md).
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nmt.data.bpe.symbols import Pair, Symbols

PairCounts = defaultdict[Pair, int]


class LearnedMerges(NamedTuple):
    """What came of a dictionary."""

    merges: list[str]  # two symbols each, with a space between
    words: Iterator[tuple[str, list[str]]]  # each, and its symbols by these merges


def learn(counts: Mapping[str, int], numbers: Iterable[int], min_frequency: int) -> LearnedMerges:
    """Learn merges from words and their frequencies: one for each of the numbers 0, 1, ...

    No pair rarer than `min_frequency`, 1 or more, is merged. ValueError if there is no pair.
    The words are those given, but for a few that must be segmented to be known.
    """
    symbols = Symbols(counts)
    pairs = PairCounts(int, symbols.pairs())
    frequent = pairs.copy()
    queue = _Queue(frequent)
    limit = max(pairs.values()) / 10
    learned: list[str] = []
    for number in numbers:
        best = queue.greatest()
        if best is None or (number and frequent[best] < limit):  # those set aside may be greater
            _set_aside(frequent, pairs, limit)
            frequent = pairs.copy()
            queue = _Queue(frequent)
            best = queue.greatest()
            if best is None:
                break
            limit = frequent[best] * number / (number + 10_000)
            _set_aside(frequent, pairs, limit)
        if frequent[best] < min_frequency:
            break
        learned.append(" ".join(best))
        for pair, more in symbols.merge(best):
            frequent[pair] += more
            queue.add(pair)
        frequent[best] = 0
        if not number % 100:
            _set_aside(frequent, pairs, limit)
    return LearnedMerges(learned, symbols.words())


class _Queue:
    """Gives the most frequent pair, of equal ones the last by characters, while counts change."""

    def __init__(self, counts: PairCounts) -> None:
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


def _set_aside(counts: PairCounts, pairs: PairCounts, limit: float) -> None:
    """Take the pairs below the limit out of `counts`; `pairs` notes how often they occur."""
    for pair in [pair for pair, count in counts.items() if count < limit]:
        count = counts.pop(pair)
        pairs[pair] = pairs[pair] + count if count < 0 else count  # below 0: a change
