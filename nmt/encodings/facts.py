"""The sizes of an encoding's site (`Dims`), and the properties that it states (`Facts`)."""

from dataclasses import dataclass, field, replace

from nmt.encodings.context import Positions
from nmt.encodings.positions import Index

START = Index()  # positions are counted from 0


@dataclass(frozen=True)
class Dims:
    """The attention site that an encoding serves, its sizes, and the positions of tokens."""

    site: str  # "encoder" | "decoder" (its self-attention) | "cross"
    layers: int  # that the encoding serves; hooks get their number among these
    heads: int
    dim: int  # of the model
    head_dim: int
    vocab: int = 0  # word types of the side, for encodings that learn something per word
    positions: Positions = START
    served_layers: tuple[int, ...] | None = None  # as the model counts, from 0; None: all


@dataclass(frozen=True)
class Facts:
    """Properties of an encoding that other code must know.

    A class states what holds for all its objects, `facts = Facts(relative=True)`; what depends on
    options goes to the constructor, `super().__init__(dims, num_positions=size)`.
    """

    # Positions
    relative: bool = False  # a common shift of all positions changes nothing (tested)
    position_type: str = "real"  # that it reads: "real" numbers, "integer" only, or "none"
    distances_only: bool = False  # it reads nothing else, so trees and graphs can give them

    # Length
    num_positions: int | None = None  # hooks see 0 .. num_positions - 1 only; None: any
    max_distance: int | None = None  # that can be encoded; None: any, or farther counts as nearer
    sized_by: str = "longest"  # the option that decides about these two
    unbound: bool | None = None  # False: distant tokens share a row of a table, or length is
    # limited; None: follows from these two and from position_type

    # Attention
    scale: float | None = None  # of the scores; None: 1 / sqrt(head_dim)
    projects_keys: bool = True  # False: keys are slices of the input, without a projection
    changes_width: bool = False  # `project` makes queries and keys of another width
    # Components of queries and keys that `project` rotates together, by position unless its type
    # is "none". Only products of the two then know the distance alone.
    rotation_planes: frozenset[frozenset[int]] = frozenset()
    reads_queries_or_keys: bool = True  # False: `scores` reads only their products
    reads_probabilities: bool = True  # False: `outputs` does without p
    streams: int = 1  # adjacent rows that `embed` makes of each row

    # Inputs and training
    columns: frozenset[str] = frozenset()  # that are read, parallel to the source text
    sentence_columns: frozenset[str] = frozenset()  # those of them with one integer a sentence
    column_ranges: dict[str, range] = field(default_factory=dict)  # integers that they may hold
    needs_lengths: bool = False  # a decoder needs the desired length of its output
    may_lack_gradients: bool = False  # its parameters, and projections, may get no gradient

    def including(self, positions: Positions) -> "Facts":
        """These facts, and what the positions need in addition."""
        ranges = {}
        if self.num_positions is not None:
            ranges = positions.column_ranges(self.num_positions)
        return replace(
            self,
            columns=self.columns | positions.columns,
            column_ranges=ranges | self.column_ranges,
            needs_lengths=self.needs_lengths or positions.needs_lengths,
        )
