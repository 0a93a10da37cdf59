"""Groups of test pairs by source length, as in the tables of Rosendahl et al. (2019)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import UserError


class Bucket(NamedTuple):
    """Source lengths from `low` to `high`, both included; `high` None has no end."""

    low: int
    high: int | None

    @property
    def name(self) -> str:
        """The name in tables: `26-50`, or `over 100`."""
        return f"over {self.low - 1}" if self.high is None else f"{self.low}-{self.high}"

    def beyond(self, trained: int | None) -> bool:
        """Whether all its lengths are beyond the trained one; False where that is not known."""
        return trained is not None and self.low > trained


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


def from_bounds(bounds: Sequence[int]) -> list[Bucket]:
    """Turn n bounds into n + 1 buckets that hold every length exactly once.

    Length 0 (an empty source) counts into the first one, as in the paper's "0-25".
    """
    lows = [0, *(bound + 1 for bound in bounds)]
    return [Bucket(low, high) for low, high in zip(lows, [*bounds, None], strict=True)]


def indices(bucket: Bucket, lengths: Sequence[int]) -> NDArray[np.intp]:
    """Indices of the pairs whose source length falls into the bucket, in order."""
    array = np.asarray(lengths, dtype=np.int64)
    inside = array >= bucket.low
    if bucket.high is not None:
        inside &= array <= bucket.high
    return np.flatnonzero(inside)
