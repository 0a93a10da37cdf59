"""Learns byte pair encoding as subword-nmt does, merge for merge, but faster.

subword-nmt searches all pairs for each merge, and copies all of them deeply whenever it has used up
the frequent ones. Here the pairs are kept in order of their frequency; subword-nmt counts and
merges them. The limits below which pairs are set aside are those of subword-nmt, too, since a pair
that is set aside and then becomes more frequent may be counted too low, which changes the order of
merges.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from subword_nmt.learn_bpe import get_pair_statistics, replace_pair, update_pair_statistics

Pair = tuple[str, str]
PairCounts = defaultdict[Pair, int]


def learn(counts: Mapping[str, int], numbers: Iterable[int], min_frequency: int) -> list[str]:
    """Learn merges from words and their frequencies: one for each of the numbers 0, 1, ...

    No pair rarer than `min_frequency`, 1 or more, is merged. Returns the two symbols of each merge
    with a space between.
    """
    words = [((*word[:-1], f"{word[-1]}</w>"), count) for word, count in counts.items()]
    frequent, indices = get_pair_statistics(words)
    pairs: PairCounts = frequent.copy()
    queue = _Queue(frequent)
    limit = max(pairs.values(), default=0) / 10
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
        changes: PairCounts = defaultdict(int)
        update_pair_statistics(best, replace_pair(best, words, indices), changes, indices)
        for pair, change in changes.items():
            frequent[pair] += change
            queue.add(pair)
        frequent[best] = 0
        if not number % 100:
            _set_aside(frequent, pairs, limit)
    return learned


class _Queue:
    """Finds the most frequent pair, of equal ones the last by characters, while counts change."""

    def __init__(self, counts: PairCounts) -> None:
        self._counts = counts
        self._by_count: dict[int, list[Pair]] = {}  # all pairs that have or had this frequency
        self._sorted = 0  # the one frequency whose pairs are in order
        for pair, count in counts.items():
            if count > 0:
                self._by_count.setdefault(count, []).append(pair)
        self._frequencies = [-count for count in self._by_count]  # a heap: its smallest is in front
        heapify(self._frequencies)

    def add(self, pair: Pair) -> None:
        """Update the count of a pair."""
        count = self._counts[pair]
        if count < 1:
            return
        if count == self._sorted:
            insort(self._by_count[count], pair)
        elif count in self._by_count:
            self._by_count[count].append(pair)
        else:
            self._by_count[count] = [pair]
            heappush(self._frequencies, -count)

    def greatest(self) -> Pair | None:
        """Return the pair, or None if no pair occurs."""
        while self._frequencies:
            count = -self._frequencies[0]
            pairs = self._by_count[count]
            if count != self._sorted:
                pairs.sort()
                self._sorted = count
            while pairs:
                if self._counts.get(pairs[-1]) == count:
                    return pairs[-1]
                pairs.pop()  # its count has changed
            del self._by_count[count]
            heappop(self._frequencies)
            self._sorted = 0
        return None


def _set_aside(counts: PairCounts, pairs: PairCounts, limit: float) -> None:
    """Move the pairs below the limit from `counts` to `pairs`."""
    for pair in [pair for pair, count in counts.items() if count < limit]:
        count = counts.pop(pair)
        pairs[pair] = pairs[pair] + count if count < 0 else count  # below 0: a change
