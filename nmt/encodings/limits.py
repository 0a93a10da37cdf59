"""The longest sequence of an encoding, from the positions of tokens and the size of its table."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from nmt.encodings.base import Encoding

ENDLESS = 2**31  # tokens; a limit beyond is none


class _Excess(NamedTuple):
    """Positions or distances beyond a table."""

    why: str
    needed: int  # rows of the table, or one more than the greatest distance; 0: no size helps
    excess: int  # by which the outermost is too far away


def least(limits: Iterable[int | None]) -> int | None:
    """The smallest of several limits; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def common_ranges(several: Iterable[Mapping[str, range]]) -> dict[str, range]:
    """The integers that are within all ranges of a name."""
    common: dict[str, range] = {}
    for ranges in several:
        for name, held in ranges.items():
            other = common.get(name, held)
            common[name] = range(max(held.start, other.start), min(held.stop, other.stop))
    return common


def max_length(e: Encoding, training: bool) -> int | None:
    """The longest sequence that an encoding can represent, in training or otherwise; None: any.

    0 where not even one token has a position that it can.
    """
    limit = e.positions.max_length(training)
    most = ENDLESS if limit is None else limit
    if _excess(e, most, training) is None:
        return limit
    lengths = range(1, most + 1)  # of which a longer one reaches no less far
    return bisect_left(lengths, True, key=lambda n: _excess(e, n, training) is not None)


def why_too_short(e: Encoding, length: int) -> str | None:
    """Why not all sequences of `length` tokens can be encoded, and what would help, or None."""
    for training in (True, False):
        when = "training" if training else "evaluation"
        limit = e.positions.max_length(training)
        if limit is not None and limit < length:
            return f"there are no positions for {length} tokens in {when}; give other ones by at="
        if (excess := _excess(e, length, training)) is not None:
            size = f"{e.facts.sized_by}={excess.needed}" if excess.needed else None
            other = e.positions.lowering(excess.excess, training) if excess.needed else None
            remedy = " or ".join(o for o in (size, other) if o) or "other positions by at="
            return f"{excess.why} in {when}; give {remedy}"
    return None


def _excess(e: Encoding, length: int, training: bool) -> _Excess | None:
    """Positions or distances of `length` tokens that are beyond the encoding's table, or None."""
    count, farthest = e.facts.num_positions, e.facts.max_distance
    tokens = "the first token" if length == 1 else f"{length} tokens"
    if count is not None and (reached := e.positions.position_range(length, training)) is not None:
        if reached.start < 0:
            return _Excess(f"{tokens} may get position {reached.start}, below 0", 0, 0)
        if reached.stop > count:
            why = f"{tokens} may get position {reached[-1]}, but it holds 0 to {count - 1}"
            return _Excess(why, reached.stop, reached.stop - count)
    if (
        farthest is not None
        and (distance := e.positions.max_distance(length, training)) is not None
    ):
        tokens = "two tokens" if length == 1 else tokens
        if distance > farthest:
            why = f"{tokens} may be {distance} apart, but it holds distances to {farthest}"
            return _Excess(why, distance + 1, distance - farthest)
    return None
