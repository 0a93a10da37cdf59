"""The symbols of all words in one array, so that numpy merges a pair in all of them at once.

subword-nmt counts wrongly in a few words: where a pair overlaps itself ("a a a"), and where the
symbol that a merge makes exists already ("abc" of "ab c" is also made of "a bc"). What it learns
depends on that, so these words are left to its own function, and by how much its index of pairs is
then wrong is recorded in `_excess`. All other words change here as they do there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from subword_nmt.learn_bpe import update_pair_statistics

Pair = tuple[str, str]
Indices = NDArray[np.int64]  # into the array of symbols

END = "</w>"  # marks the last symbol of a word
BORDER, GONE = 0, -1  # between words; the second half of a pair that was merged
LAST = 1 << 21  # above all code points: added to that of the last character


class Symbols:
    """Words as symbols: at first their characters."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._words = list(counts)
        self._counts = np.fromiter(counts.values(), np.int64, len(counts))  # [word]
        lengths = np.fromiter(map(len, self._words), np.int64, len(self._words))
        self._starts = np.concatenate(([1], np.cumsum(lengths + 1) + 1))  # [word + 1]
        size = int(self._starts[-1])
        inside = np.ones(size, bool)
        inside[0] = inside[self._starts[1:] - 1] = False
        text = "".join(self._words).encode("utf-32-le", "surrogatepass")
        codes = np.frombuffer(text, np.uint32).astype(np.int32)
        codes[np.cumsum(lengths) - 1] += LAST
        kinds, numbers = np.unique(codes, return_inverse=True)
        self.names = ["", *(chr(k % LAST) + (END if k >= LAST else "") for k in kinds.tolist())]
        self._numbers = {name: number for number, name in enumerate(self.names)}
        index = np.int32 if size < 2**31 else np.int64
        self._row = np.full(size, BORDER, np.int32)  # [size] number of each symbol
        self._row[inside] = numbers + 1
        self._word = np.cumsum(~inside, dtype=np.int32) - 1  # [size] number of its word
        self._before = np.arange(-1, size - 1, dtype=index)  # [size] indices of its neighbours
        self._after = np.arange(1, size + 1, dtype=index)
        order = np.argsort(self._row, kind="stable").astype(index)
        ends = np.cumsum(np.bincount(self._row, minlength=len(self.names)))
        self._indices = np.split(order[ends[BORDER] :], ends[1:-1] - ends[BORDER])
        self._indices.insert(BORDER, order[:0])  # [symbol] where it occurs or occurred
        self._excess: dict[Pair, dict[int, int]] = {}  # pair -> word -> occurrences too many
        self._done: set[Pair] = set()
        self._odd: set[int] = set()  # words in which a pair recurs that was merged before

    def pairs(self) -> dict[Pair, int]:
        """Count all pairs."""
        kinds = len(self.names)
        first = np.flatnonzero((self._row[:-1] > 0) & (self._row[1:] > 0))
        codes = self._row[first].astype(np.int64) * kinds + self._row[first + 1]
        return {
            (self.names[code // kinds], self.names[code % kinds]): count
            for code, count in _sums(codes, self._counts[self._word[first]])
        }

    def merge(self, pair: Pair) -> Iterable[tuple[Pair, int]]:
        """Merge a pair everywhere; yields pairs and by how much their counts change."""
        a, b = (self._numbers[symbol] for symbol in pair)
        indices = self._occurrences(a, b)
        merged = "".join(pair)
        excess = self._excess.pop(pair, {})
        slow: Iterable[int] = ()
        if merged in self._numbers:
            slow = self._word[indices].tolist()
            indices = indices[:0]
        elif excess or a == b:
            words = self._word[indices]
            special = np.isin(words, list(excess))
            if a == b:
                third = self._row[self._after[self._after[indices]]]
                special |= np.isin(words, words[third == a])
            slow = words[special].tolist()
            indices = indices[~special]
        number = self._numbers.setdefault(merged, len(self.names))
        if number == len(self.names):
            self.names.append(merged)
            self._indices.append(indices)
        self._done.add(pair)
        yield from self._merge_all(indices, a, b, number)
        if slow or excess:
            yield from self._as_subword_nmt(pair, sorted({*slow, *excess}), excess)

    def words(self) -> Iterator[tuple[str, list[str]]]:
        """Yield words and their symbols, except the few in which merged pairs recur."""
        alive = np.flatnonzero(self._row > 0)
        names = list(map(self.names.__getitem__, self._row[alive].tolist()))
        ends = np.searchsorted(alive, self._starts).tolist()
        for number, word in enumerate(self._words):
            if number not in self._odd:
                yield word, names[ends[number] : ends[number + 1]]

    def _occurrences(self, a: int, b: int) -> Indices:
        """Return where a is followed by b, from the occurrences of the rarer of both."""
        rarer = min(a, b, key=lambda symbol: len(self._indices[symbol]))
        indices = self._indices[rarer]
        self._indices[rarer] = indices = indices[self._row[indices] == rarer]
        if rarer == a:
            return indices[self._row[self._after[indices]] == b]
        indices = self._before[indices]
        return indices[self._row[indices] == a]

    def _merge_all(self, first: Indices, a: int, b: int, number: int) -> Iterator[tuple[Pair, int]]:
        """Merge a and b, which occur at these indices and do not overlap, to a new symbol."""
        counts = self._counts[self._word[first]]
        second = self._after[first]
        after = self._after[second]
        left = self._row[self._before[first]]
        self._row[first] = number
        self._row[second] = GONE
        self._after[first] = after
        self._before[after] = first
        right, new_left = self._row[after], self._row[self._before[first]]
        single = right != number  # else the next one merged follows, and has this one to its left
        before, names = _sums(left, counts), self.names
        for symbol, count in before:
            if symbol != BORDER:
                yield (names[symbol], names[a]), -count
        for symbol, count in before if single.all() else _sums(new_left, counts):
            if symbol != BORDER:
                yield (names[symbol], names[number]), count
        for symbol, count in _sums(right[single], counts[single]):
            if symbol != BORDER:
                yield (names[b], names[symbol]), -count
                yield (names[number], names[symbol]), count

    def _as_subword_nmt(
        self, pair: Pair, words: Iterable[int], excess: Mapping[int, int]
    ) -> Iterable[tuple[Pair, int]]:
        """Merge a pair in some words, and count as subword-nmt does."""
        index: defaultdict[Pair, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        change: defaultdict[Pair, int] = defaultdict(int)
        truth: dict[Pair, Counter[int]] = {pair: Counter()}  # -> word -> how many more
        changed, after = [], {}
        for word in words:
            old = self._symbols(word)
            real = list(pairwise(old)).count(pair)
            if real + excess.get(word, 0) < 1:  # subword-nmt does not look at this word
                after[word] = -real
                continue
            self._rewrite(word, pair)
            new = self._symbols(word)
            changed.append((word, new, old, int(self._counts[word])))
            for symbols, sign in ((new, 1), (old, -1)):
                for adjacent in pairwise(symbols):
                    truth.setdefault(adjacent, Counter())[word] += sign
        update_pair_statistics(pair, changed, change, index)
        after |= index.pop(pair)  # it is counted from 0 again
        del change[pair], truth[pair]
        self._note_excess(pair, after)
        for counted in {*index, *truth}:
            indexed, actual = index[counted], truth.get(counted, Counter())
            excess_of = {word: indexed[word] - actual[word] for word in {*indexed, *actual}}
            self._note_excess(counted, excess_of)
            if counted in self._done:
                self._odd.update(indexed)
        return change.items()

    def _symbols(self, word: int) -> tuple[str, ...]:
        row = self._row[self._starts[word] : self._starts[word + 1] - 1].tolist()
        return tuple(self.names[symbol] for symbol in row if symbol != GONE)

    def _rewrite(self, word: int, pair: Pair) -> None:
        """Merge a pair in one word, from left to right."""
        a, b, number = (self._numbers[symbol] for symbol in (*pair, "".join(pair)))
        at, merged = int(self._starts[word]), []
        while self._row[at] != BORDER:
            after = self._after[at]
            if self._row[at] == a and self._row[after] == b:
                merged.append(at)
                self._row[at], self._row[after] = number, GONE
                after = self._after[after]
                self._after[at], self._before[after] = after, at
            at = int(after)
        self._indices[number] = np.append(self._indices[number], merged).astype(self._after.dtype)

    def _note_excess(self, pair: Pair, counts: Mapping[int, int]) -> None:
        """Add to the excess (below 0: deficit) of a pair in the index of subword-nmt."""
        words = self._excess.pop(pair, {})
        for word, count in counts.items():
            words[word] = words.get(word, 0) + count
        if any(words.values()):
            self._excess[pair] = {word: count for word, count in words.items() if count}


def _sums(kinds: NDArray[np.integer[Any]], counts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Add up the counts of each kind."""
    if not len(kinds):
        return []
    order = kinds.argsort()
    kinds = kinds[order]
    starts = np.flatnonzero(np.concatenate(([True], kinds[1:] != kinds[:-1])))
    sums = np.add.reduceat(counts[order], starts)
    return list(zip(kinds[starts].tolist(), sums.tolist(), strict=True))
