"""Which sentences go through a model together."""

from collections.abc import Sequence


def by_length(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group the places 0, 1, ... by length, the longest first, so that little is padding.

    In each group, count x greatest length is at most the budget; a sentence that is longer than
    the whole budget stands alone. Longest first: if memory is too small, that shows at once.
    """
    groups: list[list[int]] = []
    widest = 0
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups and (len(groups[-1]) + 1) * widest <= budget:
            groups[-1].append(place)
        else:
            groups.append([place])
            widest = lengths[place]
    return groups
