"""The position assignments that a config may name in `at:`."""

from nmt.encodings.context import Positions
from nmt.encodings.positions import Index
from nmt.encodings.positions_columns import ColumnPositions, Depth, Graph, Segment, Tree
from nmt.encodings.positions_random import Augment, Shift
from nmt.encodings.positions_remaining import Remaining
from nmt.encodings.positions_sampled import Sample

POSITIONS: dict[str, type[Positions]] = {
    "index": Index,
    "shift": Shift,
    "augment": Augment,
    "sample": Sample,
    "remaining": Remaining,
    "column": ColumnPositions,
    "segment": Segment,
    "depth": Depth,
    "tree": Tree,
    "graph": Graph,
}
