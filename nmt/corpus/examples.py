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
from nmt.errors import UserError

STREAM = 1  # separates its random numbers from those that shuffle batches
WEIGHTS = 2  # and those that choose pairs by the weights of corpora


class Joining(NamedTuple):
    """Settings of the training examples of several lines."""

    max_lines: int  # consecutive lines of an example
    share: float  # of the examples that should have several lines, as far as the text allows it
    max_length: int  # pieces of a side of such an example, without eos
    within: str | None  # column with an integer per line: only lines of equal ones; None: any


def joining_of(data: Data) -> Joining | None:
    """Return the settings of joining; None if every line is an example of its own."""
    if data.join == 1 or not data.join_share:
        return None
    length = data.max_length if data.join_length is None else data.join_length
    return Joining(data.join, data.join_share, length, data.join_within)


class Examples(NamedTuple):
    """The training examples of an epoch; each pair is in one of them, or by its corpus' weight."""

    text: Pairs  # that they consist of
    first: NDArray[np.integer[Any]]  # [example] number of its first pair
    counts: NDArray[np.int64]  # [example] consecutive pairs that it consists of
    source: NDArray[np.int32]  # [example] pieces, without eos
    target: NDArray[np.int32]


def alone(store: Pairs) -> Examples:
    """Return each pair as an example of its own."""
    first = np.arange(len(store), dtype=np.uint32)  # a corpus may have many millions
    ones = np.broadcast_to(np.int64(1), len(first))
    return Examples(store, first, ones, store.source_lengths, store.target_lengths)


def joined(store: Pairs, joining: Joining, seed: int, epoch: int) -> Examples:
    """Draw the examples of an epoch; a function of the text, seed and epoch alone.

    The number of lines is drawn for one example after the other: 1 with probability 1 - share, else
    2 to `max_lines`, all equally probable. An example beyond a limit or border loses its last line
    to an example of its own, until it fits.
    """
    draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, STREAM])))
    several = draw.random(len(store)) < joining.share
    counts = np.where(several, draw.integers(2, joining.max_lines + 1, len(store)), 1)
    first = np.cumsum(counts) - counts
    counts = counts[first < len(store)]
    counts[-1] -= counts.sum() - len(store)
    while True:
        first = np.cumsum(counts) - counts
        unfit = (counts > 1) & ~_fits(store, joining, first, counts)
        if not unfit.any():
            return consecutive(store, counts)
        parts = np.stack([counts - unfit, unfit], axis=1).ravel()  # the last line on its own
        counts = parts[parts > 0]


def weighted(examples: Examples, weights: Sequence[float], seed: int, epoch: int) -> Examples:
    """Repeat the examples of an epoch by the weights of their corpora [corpus].

    Of 2.3, each example occurs twice, and others, drawn at random, once more, until 2.3 times as
    many pairs as the corpus has are in the epoch: just as many, or a few less where lines are
    joined. A function of the text, weights, seed and epoch alone.
    """
    draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, WEIGHTS])))
    corpus, chosen = examples.text.corpus_of(examples.first), list[NDArray[np.int64]]()
    assert examples.text.corpora is not None, "they have weights"
    for number, (name, weight) in enumerate(zip(examples.text.corpora.names, weights, strict=True)):
        of_corpus = np.flatnonzero(corpus == number)
        order = draw.permutation(of_corpus)
        pairs = np.cumsum(examples.counts[order])
        wanted = round(weight * int(pairs[-1]))
        if not wanted:
            raise UserError(
                f"data.corpora.{name}.weight={weight}: that is none of its {pairs[-1]} pairs; "
                "raise it, or leave the corpus out"
            )
        more = wanted - int(weight) * int(pairs[-1])
        chosen.append(np.repeat(of_corpus, int(weight)))
        few = max(int(weight < 1), np.searchsorted(pairs, more, "right"))  # one at least
        chosen.append(np.sort(order[:few]))
    rows = np.concatenate(chosen)
    first, counts, source, target = (values[rows] for values in examples[1:])
    return Examples(examples.text, first, counts, source, target)  # type: ignore[arg-type]


def consecutive(store: Pairs, counts: NDArray[np.int64]) -> Examples:
    """Return examples of so many consecutive pairs, together all pairs of the store."""
    first = np.cumsum(counts) - counts
    return Examples(store, first, counts, *(_pieces(store, s, first, counts) for s in SIDES))


def longest(store: Pairs, joining: Joining) -> dict[str, int]:
    """Return the pieces of the longest example that any epoch may have, by side."""
    by_side = {"source": int(store.source_lengths.max()), "target": int(store.target_lengths.max())}
    for count in range(2, min(joining.max_lines, len(store)) + 1):
        first = np.arange(len(store) - count + 1, dtype=np.int64)
        counts = np.full_like(first, count)
        fits = _fits(store, joining, first, counts)
        for side in SIDES if fits.any() else ():
            pieces = _pieces(store, side, first, counts)[fits]
            by_side[side] = max(by_side[side], int(pieces.max()))
    return by_side


def _fits(
    store: Pairs, joining: Joining, first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether so many pairs, beginning with each first one, may be joined [example].

    Their lines must be adjacent in the text: where one was dropped, for instance an empty one that
    ends a document, there is a border. So there is where the code of a language changes.
    """
    last = first + counts - 1
    lines = store.lines.astype(np.int64)
    fits = lines[last] - lines[first] == counts - 1
    values = [] if joining.within is None else [store.columns[joining.within]]
    for value in [*values, store.languages] if store.codes else values:
        borders = np.cumsum(np.diff(value, prepend=0) != 0)  # up to each pair, its own included
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
