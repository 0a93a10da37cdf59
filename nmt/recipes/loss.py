"""How much of a corpus the limit on its lengths costs, next to the paper's figures.

Rosendahl et al. (2019) drop a pair if its source or its target has more than 100 subword pieces,
and train once more with a limit of 75.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nmt.data.store import PairStore
from nmt.recipes.lock import Paper

SHORTER = 75  # the paper's other limit


def loss(store: PairStore, report: Mapping[str, Any], limit: int, paper: Paper) -> str:
    """A table of what was dropped (by the report) and what a limit of 75 would drop (by the store).

    The paper's percentages stand where both speak of the same limit, 100.
    """
    train = report["train"]
    pairs = int(train["total"]["pairs"])
    over = int(train["dropped"]["too long"]["pairs"])
    longer = np.maximum(store.source_lengths, store.target_lengths)
    rows: list[tuple[str, int, float | None]] = [
        (f"over {limit} pieces on a side, dropped", over, paper.over_100)
    ]
    if limit > SHORTER:
        label = f"{SHORTER + 1} to {limit} on the longer side, kept"
        rows.append((label, int((longer > SHORTER).sum()), paper.from_76_to_100))
    lines = [f"{'training text':<42}{'here':>22}{'paper':>14}"]
    lines.append(f"{'pairs read':<42}{pairs:>22,}{paper.lines:>14,}")
    for label, count, percent in rows:
        share = f"{count:,} ({100 * count / max(1, pairs):.2f} %)"
        theirs = f"{percent:g} %" if percent and limit == 100 else ""
        lines.append(f"{label:<42}{share:>22}{theirs:>14}".rstrip())
    return "\n".join(lines)
