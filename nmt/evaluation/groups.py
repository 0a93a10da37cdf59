"""Groups of test pairs: by length, as in Rosendahl et al. (2019), and beyond training."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import UserError
from nmt.evaluation.report import ALL, BEYOND, Group


class ChosenLines(NamedTuple):
    """A group, and the indices of its lines in the test set."""

    group: Group
    lines: NDArray[np.intp]


def parse_bounds(text: str) -> list[int]:
    """Read `25,50,75,100`; raises UserError unless they are growing positive integers."""
    words = text.split(",")
    if not all(word.strip().isascii() and word.strip().isdigit() for word in words):
        raise UserError(f"--bounds {text}: expected lengths like 25,50,75,100")
    bounds = [int(word) for word in words]
    check_bounds(bounds, "--bounds ")
    return bounds


def check_bounds(bounds: Sequence[int], option: str) -> None:
    """Raise UserError unless the bounds, given by this option, are growing positive integers."""
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in pairwise(bounds)):
        shown = ",".join(map(str, bounds))
        raise UserError(f"{option}{shown}: each length must be larger than the one before, from 1")


def choose_lines(
    pairs: int,
    lengths: Sequence[int] | None,
    bounds: Sequence[int],
    trained: Sequence[int | None] = (),
) -> list[ChosenLines]:
    """The filled buckets, the lines that are longer than any in training, and all.

    n bounds make n + 1 buckets that hold every length exactly once; length 0 counts into the first,
    as in the paper's "0-25". Beyond training are lines longer than the longest of each system whose
    training is known. Without bounds there is one group, all.
    """
    chosen = []
    known = [limit for limit in trained if limit is not None]
    if lengths is not None and bounds:
        array = np.asarray(lengths, dtype=np.int64)
        ends = list(bounds)
        for low, high in zip([0, *(end + 1 for end in ends)], [*ends, None], strict=True):
            name = f"over {low - 1}" if high is None else f"{low}-{high}"
            inside = np.flatnonzero((array >= low) & (high is None or array <= high))
            chosen.append(ChosenLines(Group(name, len(inside), low, high), inside))
        chosen = [bucket for bucket in chosen if bucket.group.pairs]
        if known:
            beyond = np.flatnonzero(array > max(known))
            chosen += [ChosenLines(Group(BEYOND, len(beyond)), beyond)] if len(beyond) else []
    return [*chosen, ChosenLines(Group(ALL, pairs), np.arange(pairs))]


def is_unseen(group: Group, trained: int | None) -> bool:
    """Whether all of a group are longer than the longest in a system's training."""
    return trained is not None and (group.name == BEYOND or (group.low or 0) > trained)
