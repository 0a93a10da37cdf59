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
        for name, held in ranges.items():
            other = common.get(name, held)
            common[name] = range(max(held.start, other.start), min(held.stop, other.stop))
    return common


def max_length(encoding: Encoding, training: bool) -> int | None:
    """The longest sequence that an encoding can represent, in training or otherwise; None: any.

    0 where not even one token has a position that it can.
    """
    limit = encoding.positions.max_length(training)
    most = ENDLESS if limit is None else limit
    if _excess(encoding, most, training) is None:
        return limit
    lengths = range(1, most + 1)  # of which a longer one reaches no less far
    return bisect_left(lengths, True, key=lambda n: _excess(encoding, n, training) is not None)


def why_too_short(encoding: Encoding, length: int) -> str | None:
    """Why not all sequences of `length` tokens can be encoded, and what would help, or None."""
    for training in (True, False):
        when = "training" if training else "evaluation"
        limit = encoding.positions.max_length(training)
        if limit is not None and limit < length:
            return f"there are no positions for {length} tokens in {when}; give other ones by at="
        if (excess := _excess(encoding, length, training)) is not None:
            why, size = excess
            remedy = f"{encoding.sized_by}={size}" if size else "other positions by at="
            return f"{why} in {when}; give {remedy}"
    return None


def _excess(encoding: Encoding, length: int, training: bool) -> tuple[str, int] | None:
    """Which of `length` tokens are beyond the encoding's table, and the size that holds them.

    The size is that of positions, or one more than the greatest distance; 0: none helps. None: the
    table holds all.
    """
    count, farthest = encoding.num_positions, encoding.longest_distance
    tokens = "the first token" if length == 1 else f"{length} tokens"
    if count is not None:
        positions = encoding.positions.position_range(length, training) or range(0)
        if positions.start < 0:
            return (f"{tokens} may get position {positions.start}, below 0", 0)
        if positions.stop > count:
            why = f"{tokens} may get position {positions[-1]}, but it holds 0 to {count - 1}"
            return (why, positions.stop)
    if farthest is not None:
        distance = encoding.positions.max_distance(length, training) or 0
        if distance > farthest:
            tokens = "two tokens" if length == 1 else tokens
            why = f"{tokens} may be {distance} apart, but it holds distances to {farthest}"
            return (why, distance + 1)
    return None
