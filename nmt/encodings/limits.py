"""The longest sequence of an encoding, from the positions of tokens and the size of its table."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from nmt.encodings.base import Encoding

ENDLESS = 2**31  # tokens; a limit beyond is none


def least(limits: Iterable[int | None]) -> int | None:
    """The smallest of several limits; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def column_ranges(encoding: Encoding) -> dict[str, range]:
    """The integers that columns may hold for an encoding, where not any will do."""
    count = encoding.num_positions
    of_table = {} if count is None else encoding.positions.column_ranges(count)
    return of_table | dict(encoding.column_ranges)


def common_ranges(several: Iterable[Mapping[str, range]]) -> dict[str, range]:
    """The integers that are within all ranges of a name."""
    common: dict[str, range] = {}
    for ranges in several:
        for name, values in ranges.items():
            before = common.get(name, values)
            common[name] = range(max(values.start, before.start), min(values.stop, before.stop))
    return common


def max_length(encoding: Encoding, training: bool) -> int | None:
    """The longest sequence that an encoding can represent, in training or otherwise; None: any.

    0 where not even one token has a position that it can represent.
    """
    limit = encoding.positions.max_length(training)
    most = ENDLESS if limit is None else limit
    if _fits(encoding, most, training):
        return limit
    lengths = range(1, most + 1)  # of which a longer one reaches no less far
    return bisect_left(lengths, True, key=lambda n: not _fits(encoding, n, training))


def _fits(encoding: Encoding, length: int, training: bool) -> bool:
    """Whether the table holds all positions, or distances, that `length` tokens may get."""
    count, longest = encoding.num_positions, encoding.longest_distance
    if count is not None:
        positions = encoding.positions.position_range(length, training) or range(0)
        if positions.start < 0 or positions.stop > count:
            return False
    return longest is None or (encoding.positions.max_distance(length, training) or 0) <= longest
