"""Learns byte pair encoding as subword-nmt does, merge for merge, but faster.

subword-nmt searches all pairs for each merge, and rewrites words one by one. Here pairs are kept in
the order of their frequency, and numpy merges a pair in all words at once. The limits below which
pairs are set aside are the same as in subword-nmt, since a pair that is set aside and then becomes
more frequent may be counted too low, which changes the order of merges.

subword-nmt also counts wrongly in a few words: where a pair follows itself ("a a a"), and where the
symbol that a merge makes exists already ("a</w>" ends a word, and is made of a text with "</w>").
What it learns depends on that, so these words leave the array, and functions of subword-nmt do the
rest.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from subword_nmt.learn_bpe import replace_pair, update_pair_statistics

Pair: TypeAlias = tuple[str, str]
PairCounts: TypeAlias = defaultdict[Pair, int]
Positions: TypeAlias = NDArray[np.intp]  # in the array of symbols

END = "</w>"  # marks the last symbol of a word
BORDER, GONE = 0, -1  # between words; the second half of a pair that was merged


def learn(
    counts: Mapping[str, int], numbers: Iterable[int], min_frequency: int
) -> tuple[list[str], Iterator[tuple[str, list[str]]]]:
    """Learn merges from words and their frequencies: one for each of the numbers 0, 1, ...

    No pair rarer than `min_frequency`, 1 or more, is merged.
    Returns merges, two symbols each with a space between, and each word with its symbols by these
    merges: the words of `counts`, except a few whose segmentation is not known.
    """
    words = Words(counts)
    pairs = words.count_pairs()
    frequent = pairs.copy()
    queue = Queue(frequent)
    limit = max(pairs.values(), default=0) / 10
    merges: list[str] = []
    for number in numbers:
        best = queue.greatest()
        # a pair set aside may be more frequent
        if best is None or (number and frequent[best] < limit):
            _set_aside(frequent, pairs, limit)
            frequent = pairs.copy()
            queue = Queue(frequent)
            best = queue.greatest()
            if best is None:
                break
            limit = frequent[best] * number / (number + 10_000)
            _set_aside(frequent, pairs, limit)
        if frequent[best] < min_frequency:
            break
        merges.append(" ".join(best))
        for pair, change in words.merge(best):
            frequent[pair] += change
            queue.add(pair)
        frequent[best] = 0
        if not number % 100:
            _set_aside(frequent, pairs, limit)
    return merges, words.segmented()


def _set_aside(counts: PairCounts, pairs: PairCounts, limit: float) -> None:
    """Move the pairs below the limit from `counts` to `pairs`."""
    for pair in [pair for pair, count in counts.items() if count < limit]:
        count = counts.pop(pair)
        pairs[pair] = pairs[pair] + count if count < 0 else count  # below 0: a change


class Queue:
    """Finds the most frequent pair, of equal ones the last by characters, while counts change."""

    def __init__(self, counts: PairCounts) -> None:
        self._counts = counts
        self._by_count = defaultdict[int, list[Pair]](list)  # all that have or had this frequency
        self._sorted = 0  # the one frequency whose pairs are in order
        for pair, count in counts.items():
            self._by_count[count].append(pair)
        self._frequencies = [-count for count in self._by_count if count > 0]  # a heap
        heapify(self._frequencies)

    def add(self, pair: Pair) -> None:
        count = self._counts[pair]
        if count < 1:
            return
        if count == self._sorted:
            insort(self._by_count[count], pair)
            return
        if count not in self._by_count:
            heappush(self._frequencies, -count)
        self._by_count[count].append(pair)

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


class Words:
    """The symbols of all words, at first their characters, in one array with borders between."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._words = list(counts)
        self._counts = np.fromiter(counts.values(), np.int64, len(counts))  # [word]
        spelled = chain.from_iterable((*word[:-1], word[-1] + END, "") for word in counts)
        numbers = {"": BORDER}
        symbols = [BORDER, *(numbers.setdefault(name, len(numbers)) for name in spelled), BORDER]
        self._numbers, self._names = numbers, list(numbers)
        self._row = np.array(symbols, np.int32)  # [size] number of each symbol
        self._borders = np.flatnonzero(self._row == BORDER)  # [word + 2]
        self._word = np.cumsum(self._row == BORDER, dtype=np.int32) - 1  # [size]
        size = len(symbols)
        self._before, self._after = np.arange(-1, size - 1), np.arange(1, size + 1)  # neighbours
        self._positions = np.split(  # [symbol] where it occurs or occurred
            np.argsort(self._row, kind="stable"), np.cumsum(np.bincount(self._row))[:-1]
        )
        # words that are left to subword-nmt, with their frequencies, and its index of their pairs
        self._odd: list[tuple[tuple[str, ...], int]] = []
        self._index = defaultdict[Pair, defaultdict[int, int]](lambda: defaultdict(int))

    def count_pairs(self) -> PairCounts:
        names = self._names
        first = np.flatnonzero((self._row[:-1] != BORDER) & (self._row[1:] != BORDER))
        codes = self._row[first].astype(np.int64) * len(names) + self._row[first + 1]
        sums = _sums(codes, self._counts[self._word[first]])
        pairs = ((divmod(code, len(names)), count) for code, count in sums)
        return PairCounts(int, {(names[a], names[b]): count for (a, b), count in pairs})

    def merge(self, pair: Pair) -> Iterable[tuple[Pair, int]]:
        """Merge a pair everywhere; yields pairs and by how much their counts change."""
        a, b = (self._numbers[symbol] for symbol in pair)
        first, merged = self._find(a, b), "".join(pair)
        if merged in self._numbers:
            self._leave(first)
        else:
            third = self._after[self._after[first]]
            follows_itself = self._row[third] == a
            if a != b:
                follows_itself &= self._row[self._after[third]] == b
            if follows_itself.any():
                self._leave(first[follows_itself])
                first = first[self._row[first] == a]
            self._numbers[merged] = len(self._names)
            self._names.append(merged)
            self._positions.append(first)
            yield from self._merge_at(first, pair, merged)
        if pair in self._index:
            changed = replace_pair(pair, self._odd, self._index)
            changes = PairCounts(int)
            update_pair_statistics(pair, changed, changes, self._index)
            yield from changes.items()

    def segmented(self) -> Iterator[tuple[str, list[str]]]:
        """Yield words and their symbols, except the few that were left to subword-nmt."""
        alive = np.flatnonzero(self._row > BORDER)
        names = [self._names[symbol] for symbol in self._row[alive].tolist()]
        ends = np.searchsorted(alive, self._borders).tolist()
        for word, (start, end) in zip(self._words, pairwise(ends), strict=False):
            if start < end:
                yield word, names[start:end]

    def _find(self, a: int, b: int) -> Positions:
        """Return where a is followed by b, from the occurrences of the rarer of both."""
        rarer = min(a, b, key=lambda symbol: len(self._positions[symbol]))
        positions = self._positions[rarer]
        self._positions[rarer] = positions = positions[self._row[positions] == rarer]
        if rarer == a:
            return positions[self._row[self._after[positions]] == b]
        positions = self._before[positions]
        return positions[self._row[positions] == a]

    def _merge_at(self, first: Positions, pair: Pair, merged: str) -> Iterator[tuple[Pair, int]]:
        """Merge a pair that begins at these positions, never twice in a row."""
        (a, b), names = pair, self._names
        second = self._after[first]
        before, after = self._before[first], self._after[second]
        self._row[first], self._row[second] = self._numbers[merged], GONE
        self._after[first], self._before[after] = after, first
        counts = self._counts[self._word[first]]
        for symbol, count in _sums(self._row[before], counts):
            if symbol != BORDER:
                yield (names[symbol], a), -count
                yield (names[symbol], merged), count
        for symbol, count in _sums(self._row[after], counts):
            if symbol != BORDER:
                yield (b, names[symbol]), -count
                yield (merged, names[symbol]), count

    def _leave(self, positions: Positions) -> None:
        """Leave the words of these positions to subword-nmt from now on."""
        for word in set(self._word[positions].tolist()):
            row = self._row[self._borders[word] + 1 : self._borders[word + 1]]
            symbols = tuple(self._names[symbol] for symbol in row.tolist() if symbol != GONE)
            row[:] = GONE
            for pair in pairwise(symbols):
                self._index[pair][len(self._odd)] += 1
            self._odd.append((symbols, int(self._counts[word])))


def _sums(kinds: NDArray[np.integer[Any]], counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    if not len(kinds):
        return []
    order = kinds.argsort()
    kinds = kinds[order]
    starts = np.flatnonzero(np.concatenate(([True], kinds[1:] != kinds[:-1])))
    sums = np.add.reduceat(counts[order], starts)
    return list(zip(kinds[starts].tolist(), sums.tolist(), strict=True))
