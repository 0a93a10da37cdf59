"""Tables by distance, key minus query: 2 n - 1 entries, for the distances 1 - n to n - 1."""

from collections.abc import Sequence

import torch
from torch import Tensor


def resized(table: Tensor, reach: int) -> Tensor:
    """[layers, 2 n - 1, head_dim] cut to the distances up to reach, or its ends repeated so far."""
    n = (table.shape[1] + 1) // 2
    distances = torch.arange(-reach, reach + 1).clamp(1 - n, n - 1)
    return table[:, distances + n - 1]


def by_distance(ends: Sequence[Tensor]) -> Tensor:
    """[.., 2 n - 1] of what the last query, and perhaps the first, gets of n keys [.., n] each."""
    behind = ends[0]
    ahead = ends[1] if len(ends) > 1 else behind[..., -1:].expand_as(behind)  # is never asked for
    return torch.cat([behind, ahead[..., 1:]], dim=-1)


def by_pair(table: Tensor, queries: Tensor, keys: int) -> Tensor:
    """[.., 2 n - 1] by distance -> [.., query, key]."""
    middle = table.shape[-1] // 2
    return table[..., torch.arange(keys) - queries[:, None] + middle]


def reach(table: Tensor, axis: int) -> int:
    """The least distance at which all greater ones count as the same; `axis` holds 2 n - 1."""
    rows = table.movedim(axis, 0).flatten(1)
    n = (len(rows) + 1) // 2

    def last_change(side: Tensor) -> int:
        moved = (side != side[-1]).any(1).nonzero()
        return int(moved[-1]) + 1 if len(moved) else 0

    return max(last_change(rows[:n].flip(0)), last_change(rows[n - 1 :]))
