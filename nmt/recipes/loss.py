"""How much of a corpus the limit on its lengths costs, beside what the paper says it cost them.

Rosendahl et al. (2019) drop a pair if its source or its target has more than 100 subword pieces,
and train once more with a limit of 75.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nmt.data.store import PairStore
from nmt.recipes.lock import Paper

SHORTER = 75  # the paper's other limit


class DroppedPairs(NamedTuple):
    """Pairs of the training text, by their longer side."""

    pairs: int  # all that were read
    limit: int  # data.max_length
    over: int  # longer than the limit, and so dropped
    between: int  # kept, but longer than SHORTER


def loss(store: PairStore, report: Mapping[str, Any], limit: int) -> DroppedPairs:
    """Count what was dropped (by the report) and what a limit of 75 would drop (by the store)."""
    train = report["train"]
    longer = np.maximum(store.source_lengths, store.target_lengths)
    over = int(train["dropped"]["too long"]["pairs"])
    return DroppedPairs(int(train["total"]["pairs"]), limit, over, int((longer > SHORTER).sum()))


def describe(dropped: DroppedPairs, paper: Paper) -> str:
    """A few lines; the paper's numbers stand beside ours where both speak of the same limit."""
    rows = [("pairs read", f"{dropped.pairs:,}", f"{paper.lines:,}")]
    over = f"{paper.over_100:g} %" if dropped.limit == 100 else ""
    rows.append(
        (f"over {dropped.limit} pieces on a side, dropped", _share(dropped.over, dropped), over)
    )
    if dropped.limit > SHORTER:
        percent = paper.from_76_to_100
        between = f"{percent:g} %" if percent and dropped.limit == 100 else ""
        label = f"{SHORTER + 1} to {dropped.limit} on the longer side, kept"
        rows.append((label, _share(dropped.between, dropped), between))
    lines = [f"{'training text':<42}{'here':>22}{'paper':>14}"]
    return "\n".join([*lines, *(f"{a:<42}{b:>22}{c:>14}" for a, b, c in rows)])


def _share(count: int, dropped: DroppedPairs) -> str:
    return f"{count:,} ({100 * count / max(1, dropped.pairs):.2f} %)"
