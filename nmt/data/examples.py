"""Training examples: one line each, or several consecutive ones, joined as training goes.

Models that were trained on sentences fail on longer text; joining consecutive training lines at
random moves the lengths of training (Kondo et al. 2021, Sentence Concatenation Approach to Data
Augmentation for Neural Machine Translation; Varis and Bojar 2021, Sequence Length is a Domain).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt import config
from nmt.data.store import SIDES, Pairs

STREAM = 1  # tells its random numbers from those that shuffle batches


class Joining(NamedTuple):
    """Which lines may become one example."""

    most: int  # consecutive lines of an example
    share: float  # of the examples that are to have several, as far as the text allows it
    length: int  # most pieces of a side of such an example, eos apart
    within: str | None  # column with an integer per line: only lines of the same one; None: any


def joining_of(data: config.Data) -> Joining | None:
    """What settings ask for; None where no lines are to be joined."""
    if data.join == 1 or not data.join_share:
        return None
    length = data.max_length if data.join_length is None else data.join_length
    return Joining(data.join, data.join_share, length, data.join_within)


class Examples(NamedTuple):
    """The training examples of an epoch, in the order of the text; each pair is in one of them."""

    text: Pairs  # that they consist of
    first: NDArray[np.integer[Any]]  # [example] number of its first pair
    counts: NDArray[np.int64]  # [example] consecutive pairs that it consists of
    source: NDArray[np.int32]  # [example] pieces, without eos
    target: NDArray[np.int32]


def alone(store: Pairs) -> Examples:
    """Each pair as an example of its own."""
    every = np.arange(len(store), dtype=np.uint32)  # a corpus may have many millions
    ones = np.broadcast_to(np.int64(1), len(every))
    return Examples(store, every, ones, store.source_lengths, store.target_lengths)


def joined(store: Pairs, joining: Joining, seed: int, epoch: int) -> Examples:
    """Draw the examples of an epoch; a function of the text, seed and epoch alone.

    How many lines an example has is drawn for one after the other: 1 with probability 1 - share,
    else 2 to `most`, all equally probable. What a limit or border forbids loses its last line to an
    example of its own, until it fits.
    """
    draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, STREAM])))
    several = draw.random(len(store)) < joining.share
    counts = np.where(several, draw.integers(2, joining.most + 1, len(store)), 1)
    first = np.cumsum(counts) - counts
    counts = counts[first < len(store)]
    counts[-1] -= counts.sum() - len(store)
    while True:
        first = np.cumsum(counts) - counts
        wrong = (counts > 1) & ~_fits(store, joining, first, counts)
        if not wrong.any():
            return consecutive(store, counts)
        parts = np.stack([counts - wrong, wrong], axis=1).ravel()  # the last line apart
        counts = parts[parts > 0]


def consecutive(store: Pairs, counts: NDArray[np.int64]) -> Examples:
    """Examples of so many consecutive pairs each, which are all pairs of the store."""
    first = np.cumsum(counts) - counts
    return Examples(store, first, counts, *(_pieces(store, s, first, counts) for s in SIDES))


def longest(store: Pairs, joining: Joining) -> dict[str, int]:
    """Pieces of the longest example that any epoch may have, by side."""
    most = {side: int(lengths.max()) for side, lengths in _lengths(store).items()}
    for count in range(2, min(joining.most, len(store)) + 1):
        first = np.arange(len(store) - count + 1, dtype=np.int64)
        counts = np.full_like(first, count)
        good = _fits(store, joining, first, counts)
        for side in SIDES if good.any() else ():
            pieces = _pieces(store, side, first, counts)[good]
            most[side] = max(most[side], int(pieces.max()))
    return most


def _lengths(store: Pairs) -> dict[str, NDArray[np.int32]]:
    return {"source": store.source_lengths, "target": store.target_lengths}


def _fits(
    store: Pairs, joining: Joining, first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether so many pairs from each first one on may be joined.

    Their lines must stand side by side in the text: where one was dropped, as an empty one that
    ends a document, there is a border.
    """
    last = first + counts - 1
    lines = store.lines.astype(np.int64)
    good = lines[last] - lines[first] == counts - 1
    if joining.within is not None:
        changes = np.diff(store.columns[joining.within], prepend=0) != 0
        borders = np.cumsum(changes)  # borders up to each pair, its own included
        good &= borders[last] == borders[first]
    for side in SIDES:
        good &= _pieces(store, side, first, counts) <= joining.length
    return good


def _pieces(
    store: Pairs, side: str, first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Pieces of a side of each example, without eos."""
    ends: NDArray[Any] = store.offsets[side].astype(np.int64)
    return (ends[first + counts] - ends[first] - counts).astype(np.int32)
