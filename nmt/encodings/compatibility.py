"""Which encodings of one site can be combined, and which then depend on absolute positions.

A product q . k of rotated vectors (rotary) depends on the distance alone, because both are rotated.
A vector that is multiplied with only one of the two, such as the keys of Shaw et al. (2018) or the
u of Transformer-XL, is not rotated with it: q_i' . r then depends on the position i. So does a
product with a number for each component, where the components of a plane get different numbers.
"""

from collections.abc import Sequence
from itertools import combinations

from nmt.encodings.base import Encoding


def check(entries: Sequence[Encoding]) -> None:
    """Raise ValueError for entries that cannot be combined, with what to do."""
    for one, other in combinations(entries, 2):
        if not share_a_layer(one, other):
            continue
        scales = {e.scale for e in (one, other)} - {None}
        if len(scales) > 1:
            raise ValueError(
                "encoding: more than one entry sets the scale of the scores, "
                f"{one.name} and {other.name}; leave one out"
            )
        if "normalise" in one.hooks and "normalise" in other.hooks:
            names = f"{one.name} and {other.name}"
            raise ValueError(f"encoding: only one entry can take the place of softmax, not {names}")
    embedding = [e.name for e in entries if "embed" in e.hooks]
    if len(embedding) > 1 and any(e.streams > 1 for e in entries):
        names = ", ".join(embedding)
        raise ValueError(f"encoding: one entry must make all embeddings complex, not {names}")
    for i, e in enumerate(entries):
        if e.changes_width:
            met = [o for o in entries if o is not e and share_a_layer(e, o)]
            _check_width(e, met, [o for o in entries[i + 1 :] if share_a_layer(e, o)])


def _check_width(e: Encoding, others: Sequence[Encoding], later: Sequence[Encoding]) -> None:
    """Refuse others that read queries and keys, where features of another width replace them."""
    for other in others:
        if other.changes_width or _reads(other):
            does = "makes features of" if other.changes_width else "reads"
            raise ValueError(
                f"encoding.{other.name}: {does} queries and keys, but encoding.{e.name} turns them "
                "into features that only their product can read; leave one of the two out"
            )
    for other in later:
        if "project" in other.hooks:
            raise ValueError(
                f"encoding.{other.name}: changes queries and keys, of which encoding.{e.name} has "
                f"made features already; name {e.name} last"
            )


def breaking_shift_invariance(entries: Sequence[Encoding]) -> tuple[Encoding, Encoding] | None:
    """The first two relative entries that together depend on absolute positions, or None."""
    for one, other in combinations([e for e in entries if e.relative], 2):
        if not share_a_layer(one, other):
            continue
        # rotations by words may come first: those of query and key by position then meet
        if _by_position(one) and not _commute(one.rotation_planes, other.rotation_planes):
            return one, other
        for rotary, reader in ((one, other), (other, one)):
            if _by_position(rotary) and _reads(reader):
                return rotary, reader
    return None


def share_a_layer(one: Encoding, other: Encoding) -> bool:
    """Whether two entries of a site meet in some layer."""
    served, others = one.dims.served_layers, other.dims.served_layers
    return served is None or others is None or not {*served}.isdisjoint(others)


def _by_position(e: Encoding) -> bool:
    """Whether it rotates queries and keys by their position, not by their words."""
    return bool(e.rotation_planes) and e.position_type != "none"


def _reads(e: Encoding) -> bool:
    """Whether `scores` reads queries or keys other than by their product."""
    return "scores" in e.hooks and e.reads_queries_or_keys


def _commute(one: frozenset[frozenset[int]], other: frozenset[frozenset[int]]) -> bool:
    """Whether the order of two rotations does not matter."""
    return all(a == b or not a & b for a in one for b in other)
