"""How long a sequence may be: from the positions that it may get, and those that a table holds."""

from bisect import bisect_left
from typing import NamedTuple

from nmt.encodings.base import Encoding

ENDLESS = 2**31  # tokens; a limit beyond is none


class _Excess(NamedTuple):
    """Positions or distances beyond a table."""

    why: str
    needed: int  # rows of the table, or one more than the greatest distance; 0: no size helps
    excess: int  # by which the outermost is too far away


def longest(e: Encoding, training: bool) -> int | None:
    """The longest sequence that an encoding can represent, in training or otherwise; None: any.

    0 where not even one token has a position that it can.
    """
    given = e.positions.limit_in(training)
    most = ENDLESS if given is None else given
    if _excess(e, most, training) is None:
        return given
    lengths = range(1, most + 1)  # of which a longer one reaches no less far
    return bisect_left(lengths, True, key=lambda n: _excess(e, n, training) is not None)


def shortage(e: Encoding, length: int) -> str | None:
    """Why not all sequences of `length` tokens can be encoded, and what would help, or None."""
    for training in (True, False):
        when = "training" if training else "evaluation"
        given = e.positions.limit_in(training)
        if given is not None and given < length:
            return f"there are no positions for {length} tokens in {when}; give other ones by at="
        if (excess := _excess(e, length, training)) is not None:
            size = f"{e.facts.sized_by}={excess.needed}" if excess.needed else None
            other = e.positions.lowered(excess.excess, training) if excess.needed else None
            options = " or ".join(o for o in (size, other) if o) or "other positions by at="
            return f"{excess.why} in {when}; give {options}"
    return None


def _excess(e: Encoding, length: int, training: bool) -> _Excess | None:
    """Why some position or distance of `length` tokens is beyond the encoding's table, or None."""
    count, farthest = e.facts.num_positions, e.facts.max_distance
    tokens = "the first token" if length == 1 else f"{length} tokens"
    if count is not None and (reach := e.positions.reach(length, training)) is not None:
        if reach.start < 0:
            return _Excess(f"{tokens} may get position {reach.start}, below 0", 0, 0)
        if reach.stop > count:
            why = f"{tokens} may get position {reach[-1]}, but it holds 0 to {count - 1}"
            return _Excess(why, reach.stop, reach.stop - count)
    if farthest is not None and (apart := e.positions.apart(length, training)) is not None:
        tokens = "two tokens" if length == 1 else tokens
        if apart > farthest:
            why = f"{tokens} may be {apart} apart, but it holds distances to {farthest}"
            return _Excess(why, apart + 1, apart - farthest)
    return None
