"""The position assignments that a config may name in `at:`."""

from nmt.encodings.context import Positions
from nmt.encodings.drawn import Augment, Shift
from nmt.encodings.placed_by_columns import Column, Depth, Graph, Tree
from nmt.encodings.positions import Index
from nmt.encodings.remaining import Remaining
from nmt.encodings.sampled import Sample

POSITIONS: dict[str, type[Positions]] = {
    "index": Index,
    "shift": Shift,
    "augment": Augment,
    "sample": Sample,
    "remaining": Remaining,
    "column": Column,
    "depth": Depth,
    "tree": Tree,
    "graph": Graph,
}
