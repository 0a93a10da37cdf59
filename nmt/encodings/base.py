"""The seam between attention and positional encodings: eight questions, each answered 'nothing'.

An encoding overrides one or two hooks. Which ones it overrides decides the fast path: without
`scores`, `normalise` and `values`, the fused attention kernel serves it. `distance_vectors` says
what a kernel needs to know that computes scores and values.

Axes: batch, query, key, heads, dim (of the model), head_dim. Hooks receive the layer's number
because one object serves all layers of its site.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from nmt.encodings.context import Context, Positions
from nmt.encodings.limits import Room
from nmt.encodings.positions import Index
from nmt.encodings.weights import softmax

Projection = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Dims:
    """The shape of the stack that an encoding serves."""

    site: str  # "encoder" | "decoder" (its self-attention) | "cross"
    layers: int
    heads: int
    dim: int
    head_dim: int
    vocab: int = 0  # word types of the side, for encodings that learn something per word


class DistanceVectors(NamedTuple):
    """One vector for each distance, key minus query, clipped to [-tau, tau]."""

    tau: int
    keys: Tensor | None  # [heads | 1, 2 tau + 1, head_dim], added to keys; None: nothing is
    values: Tensor | None  # likewise, added to values


class Encoding(nn.Module):
    """Where tokens stand, as one attention site and all its layers see it."""

    relative: bool = False  # a common shift of all positions changes nothing (tested)
    takes: ClassVar[str] = "real"  # positions: "real" numbers, "integers" only, or "nothing"
    pairwise: bool = False  # asks only for distances, so trees and graphs can give them
    streams: ClassVar[int] = 1  # `embed` returns so many rows for each, side by side
    scale: float | None = None  # of the scores; None: 1 / sqrt(head_dim)
    sized_by: ClassVar[str] = "longest"  # the option that says how many positions are held
    idle: ClassVar[str] = ""  # why parameters of a model with it may get no gradient, if so
    widens: ClassVar[bool] = False  # `project` makes queries and keys of another width
    projects_keys: bool = True  # false: keys are slices of the input, without a projection

    def __init__(self, dims: Dims, positions: Positions | None = None) -> None:
        super().__init__()
        self.dims = dims
        self.positions: Positions = positions or Index()
        self.name = type(self).__name__  # of its entry in the config; set by the builder

    @property
    def planes(self) -> frozenset[frozenset[int]]:
        """Components of queries and keys that `project` turns together, by their positions.

        Turned queries and keys know their distance only when they meet each other.
        """
        return frozenset()

    @property
    def reads(self) -> bool:
        """Whether `scores` meets queries or keys with anything but each other."""
        return self.overrides("scores")

    def overrides(self, hook: str) -> bool:
        """Whether it answers one of the eight questions."""
        return getattr(type(self), hook) is not getattr(Encoding, hook)

    @property
    def holds(self) -> int | None:
        """Positions 0 .. holds - 1 can be encoded, as a table has rows for them; None: any."""
        return None

    @property
    def spans(self) -> int | None:
        """The greatest distance that can be encoded; None: any, or it counts as a smaller one."""
        return None

    @property
    def limit(self) -> int | None:
        """The longest sequence that can be encoded in the module's present mode; None: any."""
        return self.limit_in(self.training)

    def limit_in(self, training: bool) -> int | None:
        """The longest sequence whose positions are all held, in training or otherwise; None: any.

        0 where not even one token has a place.
        """
        return self._room.longest(training)

    def shortage(self, length: int) -> str | None:
        """Why not all sequences of `length` tokens can be encoded, and what would help, or None."""
        return self._room.shortage(length)

    @property
    def _room(self) -> Room:
        return Room(self.positions, self.holds, self.spans, self.sized_by)

    @property
    def column_ranges(self) -> dict[str, range]:
        """The integers that columns may hold, where not all will do."""
        return {} if self.holds is None else self.positions.column_ranges(self.holds)

    @property
    def unbound(self) -> bool:
        """No longest sequence, and nothing far away shares the last row of a table."""
        return self.holds is None and self.spans is None and self.takes != "integers"

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns beside the text that are read."""
        return self.positions.columns

    @property
    def lengths(self) -> bool:
        """Whether a decoder needs the desired length of its output."""
        return self.positions.lengths

    def zero_initialise(self) -> bool:
        """Set the parameters so that the encoding changes nothing; false where that cannot be.

        Step 0 of a model that got this encoding in addition then equals the model it came from.
        """
        return False

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Change the embeddings [batch, query, dim], once per stack, before dropout."""
        return x

    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        """Change the input [batch, query, dim] of every layer, residual path included."""
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Wrap the projections [batch, n, dim] -> q, k, v [batch, heads, n, head_dim].

        `xk` and `xv` hold the new keys only; keys are cached as they are returned here.
        """
        return project(xq, xk, xv)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Change the raw products s = q k^T [batch, heads, query, key], before scaling.

        `s` may be written into: nobody else reads it.
        """
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """Add [batch | 1, heads | 1, query | 1, key | 1] after scaling, whatever q and k are."""
        return None

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """Make weights of scores e [batch, heads, query, key], scaled and with all biases.

        Takes the place of softmax, for one entry of a site. Keys where context.allowed is false get
        no weight.
        """
        return softmax(e, context.allowed)

    def values(self, p: Tensor, layer: int, context: Context) -> Tensor | None:
        """Add [batch | 1, heads | 1, query | 1, head_dim | 1] to the output of probabilities p.

        p [batch, heads, query, key] is after dropout.
        """
        return None

    def distance_vectors(self, layer: int, context: Context) -> DistanceVectors | None:
        """All that `scores` and `values` add, where it is one vector per clipped distance.

        And query i and key j are j - i apart. A kernel can then compute both inside of attention;
        None: only `scores` and `values` know. A class that changes one of these is not asked,
        unless it answers this, too.
        """
        return None

    def readout(self, x: Tensor, context: Context) -> Tensor:
        """Change the top of the stack [batch, query, dim], once."""
        return x

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor]:
        """Vectors that a layer has learned for distances [n], key minus query, by their role.

        [heads | 1, n, width] each, for those who want to see them; no part of attention. Nothing
        where there are none, or where they are fixed.
        """
        return {}

    def table(
        self, rows: int, width: int, per_layer: bool = True, per_head: bool = False
    ) -> nn.Parameter:
        """A learned table [layers | 1, heads | 1, rows, width], Glorot uniform over rows, width."""
        shape = (self.dims.layers if per_layer else 1, self.dims.heads if per_head else 1)
        table = torch.empty(*shape, rows, width)
        bound = (6 / (rows + width)) ** 0.5
        return nn.Parameter(table.uniform_(-bound, bound))

    @staticmethod
    def pick(table: Tensor, layer: int) -> Tensor:
        """The part [heads | 1, rows, width] of a table that serves a layer."""
        return table[layer if table.shape[0] > 1 else 0]


def zeroed(*parameters: Tensor) -> bool:
    """Set parameters to zero, where that is how an encoding changes nothing; always true."""
    with torch.no_grad():
        for p in parameters:
            p.zero_()
    return True
