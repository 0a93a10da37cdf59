"""Positions read from columns parallel to the source, so in the encoder only.

Tree and Graph give distances between pairs of tokens and no position of a single one, so they serve
only encodings that need nothing but distances.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from nmt.config.check import PositiveInt
from nmt.encodings.context import Context, Positions
from nmt.encodings.trees.trees import depths, graph_distances, tree_distances

Heads = Literal["heads"]  # the only column whose words become pieces when a model reads it


@dataclass(frozen=True)
class ColumnPositions(Positions):
    """The integer of each token in a column, such as its position in the translation."""

    name: str = ""
    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("at.column: say which one, as in at={column: {name: order}}")

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.name})

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """The integers of the column [batch, length]; ValueError if sentences have one each."""
        return per_token(self.name, index, context)

    def position_range(self, length: int, training: bool) -> None:
        """None: unknown before the column is read."""

    def column_ranges(self, num_positions: int) -> dict[str, range]:
        return {self.name: range(num_positions)}


@dataclass(frozen=True)
class Segment(Positions):
    """The position of a token is its index in its segment; a column numbers the segments.

    A segment ends where the number changes. With the numbers themselves for a second encoding, this
    makes the two levels of He et al. (2024), BiPE: a vector for the position in the segment, and
    RoPE or ALiBi for the distance of two segments (zhenyuhe00/BiPE; there a full stop or a new line
    ends a segment).
    """

    name: str = "segments"
    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.name})

    def assign(self, index: Tensor, context: Context) -> Tensor:
        numbers = per_token(self.name, index, context)
        begins = F.pad(numbers[:, 1:] != numbers[:, :-1], (1, 0))  # but the first, at 0
        return index - (index * begins).cummax(-1).values


@dataclass(frozen=True)
class Depth(Positions):
    """The position of a token is the depth of its word in a tree; the root has 0."""

    heads: Heads = "heads"
    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.heads})

    def assign(self, index: Tensor, context: Context) -> Tensor:
        return depths(per_token(self.heads, index, context))


@dataclass(frozen=True)
class Tree(Positions):
    """Distances in a tree, signed (Wang et al. 2019): see `trees.tree_distances`."""

    heads: Heads = "heads"
    distances_only: ClassVar[bool] = True
    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    @property
    def columns(self) -> frozenset[str]:
        """Heads, and which pieces are one word."""
        return frozenset({self.heads, "words"})

    def max_distance(self, length: int, training: bool) -> int:
        """Of a chain, or of two leaves that hang side by side on one: the sum of their depths."""
        return max(length - 1, 2 * (length - 2))

    def distances(self, context: Context) -> Tensor:
        """[batch, query, key], key minus query; pieces of one word are 0 apart."""
        return tree_distances(*tree_columns(self.heads, context))


@dataclass(frozen=True)
class Graph(Tree):
    """Lengths of directed paths between words (Schmitt et al. 2021): see `trees.graph_distances`.

    Integers -longest..longest, and longest + 1 where no path leads either way: a table of
    2 (longest + 1) rows holds them all.
    """

    longest: PositiveInt = 8

    def max_distance(self, length: int, training: bool) -> int:
        """However many tokens: the number where there is no path."""
        return self.longest + 1

    def distances(self, context: Context) -> Tensor:
        """[batch, query, key], positive where the path leads from the query down to the key."""
        return graph_distances(*tree_columns(self.heads, context), self.longest)


def per_token(name: str, index: Tensor, context: Context) -> Tensor:
    """A column as long as the text, [batch, length]; raises ValueError for any other."""
    column = context.column(name)
    if column.shape[1] == index.shape[1]:
        return column
    if column.shape[1] == 1:
        raise ValueError(f"column {name!r} has one integer per sentence; one per word is needed")
    raise ValueError(f"column {name!r} has {column.shape[1]} integers for {index.shape[1]} tokens")


def tree_columns(heads: str, context: Context) -> tuple[Tensor, Tensor]:
    """The two columns of a tree: heads and words."""
    at = context.key_positions
    return per_token(heads, at, context), per_token("words", at, context)
