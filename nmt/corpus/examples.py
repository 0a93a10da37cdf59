"""Training examples: one line each, or several consecutive ones, joined as training goes.

Models that were trained on sentences fail on longer text; joining consecutive training lines at
random moves the lengths of training (Kondo et al. 2021, Sentence Concatenation Approach to Data
Augmentation for Neural Machine Translation; Varis and Bojar 2021, Sequence Length is a Domain).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.config.data import Data
from nmt.corpus.pairs import SIDES, Pairs

JOINS, WEIGHTS = 1, 2  # streams of random numbers; a third shuffles batches

Ints = NDArray[np.integer[Any]]


class Joining(NamedTuple):
    """Settings of the training examples of several lines."""

    max_lines: int  # consecutive lines of an example
    share: float  # of the examples that should have several lines, as far as the text allows it
    max_length: int  # pieces of a side of an example of several lines, without eos
    within: str | None  # column with an integer per line: only lines of equal ones; None: any


def joining_of(data: Data) -> Joining | None:
    """The settings of joined lines; None if each example is one line."""
    if data.join == 1 or not data.join_share:
        return None
    length = data.max_length if data.join_length is None else data.join_length
    return Joining(data.join, data.join_share, length, data.join_within)


class Examples(NamedTuple):
    """The training examples of an epoch; each pair is in one of them, or by its corpus' weight."""

    first: Ints  # [example] number of its first pair
    counts: NDArray[np.int64]  # [example] consecutive pairs that it consists of
    lengths: dict[str, NDArray[np.int32]]  # by side: [example] pieces, without eos


def random_of(seed: int, epoch: int, *stream: int) -> np.random.Generator:
    """A generator for an epoch that gives the same numbers on every machine (Philox)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, *stream])))


def draw_examples(
    store: Pairs, joining: Joining | None, weights: Sequence[float], seed: int, epoch: int
) -> Examples:
    """Draw the examples of an epoch; a function of the text, settings, seed and epoch alone.

    With weights [corpus], of 2.3 each example of a corpus occurs twice, and a third time with a
    probability of 0.3.
    """
    if joining is None:
        first: Ints = np.arange(len(store), dtype=np.uint32)  # a corpus may have many millions
        examples = Examples(first, np.broadcast_to(np.int64(1), len(store)), store.lengths)
    else:
        examples = make_examples(store, join_lines(store, joining, random_of(seed, epoch, JOINS)))
    if all(weight == 1 for weight in weights):
        return examples
    copies = np.array(weights)[store.corpus_of(examples.first)]
    chance = random_of(seed, epoch, WEIGHTS).random(len(copies))
    rows = np.repeat(np.arange(len(copies)), np.floor(copies + chance).astype(np.int64))
    lengths = {side: side_lengths[rows] for side, side_lengths in examples.lengths.items()}
    return Examples(examples.first[rows], examples.counts[rows], lengths)


def join_lines(store: Pairs, joining: Joining, draw: np.random.Generator) -> NDArray[np.int64]:
    """Return how many lines each example has, one after the other [example].

    1 with probability 1 - share, otherwise 2 to `max_lines` with equal probability. The last line
    of an example beyond a limit or border becomes an example itself, until all fit.
    """
    several = draw.random(len(store)) < joining.share
    counts = np.where(several, draw.integers(2, joining.max_lines + 1, len(store)), 1)
    counts = counts[np.cumsum(counts) - counts < len(store)]
    counts[-1] -= counts.sum() - len(store)
    while (
        unfit := (counts > 1) & ~_fits(store, joining, np.cumsum(counts) - counts, counts)
    ).any():
        parts = np.stack([counts - unfit, unfit], axis=1).ravel()  # the last line on its own
        counts = parts[parts > 0]
    return counts


def find_longest(store: Pairs, joining: Joining) -> dict[str, int]:
    """Return the pieces of the longest example that any epoch may have, by side."""
    by_side = {side: int(store.lengths[side].max()) for side in SIDES}
    for count in range(2, min(joining.max_lines, len(store)) + 1):
        first = np.arange(len(store) - count + 1, dtype=np.int64)
        counts = np.full_like(first, count)
        fits = _fits(store, joining, first, counts)
        for side in SIDES if fits.any() else ():
            by_side[side] = max(by_side[side], int(_pieces(store, side, first, counts)[fits].max()))
    return by_side


def make_examples(store: Pairs, counts: NDArray[np.int64]) -> Examples:
    """Return examples of so many consecutive pairs, together all pairs of the store."""
    first = np.cumsum(counts) - counts
    return Examples(first, counts, {side: _pieces(store, side, first, counts) for side in SIDES})


def _fits(
    store: Pairs, joining: Joining, first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether so many pairs, beginning with each first one, may be joined [example].

    Their lines must be adjacent in the text: a dropped line, for instance an empty one that ends a
    document, is a border, and so is a change of the language code.
    """
    last, lines = first + counts - 1, store.lines.astype(np.int64)
    fits = lines[last] - lines[first] == counts - 1
    values = [] if joining.within is None else [store.columns[joining.within]]
    for value in [*values, store.languages] if store.codes else values:
        borders = np.cumsum(np.diff(value, prepend=0) != 0)  # up to and including each pair
        fits &= borders[last] == borders[first]
    for side in SIDES:
        fits &= _pieces(store, side, first, counts) <= joining.max_length
    return fits


def _pieces(
    store: Pairs, side: str, first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Return the pieces of a side of each example, without eos; tag and code are there once."""
    ends: NDArray[Any] = store.offsets[side].astype(np.int64)
    pieces = ends[first + counts] - ends[first] - counts
    if side == "source":
        pieces -= store.count_leading(first) * (counts - 1)
    return pieces.astype(np.int32)
