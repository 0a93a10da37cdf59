"""The position assignments that a config may name in `at:`."""

from importlib import import_module
from typing import Any

from nmt.encodings.context import Positions

POSITIONS = {
    "index": "positions.Index",
    "shift": "positions_random.Shift",
    "augment": "positions_random.Augment",
    "sample": "positions_sampled.Sample",
    "remaining": "positions_remaining.Remaining",
    "column": "positions_columns.ColumnPositions",
    "segment": "positions_columns.Segment",
    "depth": "positions_columns.Depth",
    "tree": "positions_columns.Tree",
    "graph": "positions_columns.Graph",
}  # name in `at:` -> module in this folder, and class


def position_class(name: str) -> type[Positions]:
    """The class of a name in POSITIONS; its module is imported only where a config has the name."""
    module, _, cls = POSITIONS[name].partition(".")
    positions: Any = getattr(import_module(f"nmt.encodings.{module}"), cls)
    return positions
