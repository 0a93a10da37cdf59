"""The interface of positional encodings to attention: eight hooks, by default plain attention.

An encoding overrides one or two hooks. Which ones it overrides decides the fast path: without
`scores`, `normalise` and `outputs`, the fused attention kernel serves it. Class attributes state
what other code must know of it.

Axes: batch, query, key, heads, dim (of the model), head_dim. Hooks receive the layer's number
because one object serves all layers of its site.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nmt.encodings.context import INDICES, Positions
from nmt.encodings.context import Context as Context

ENDLESS = 2**31  # tokens; a longer limit is none
HOOKS = ("embed", "layer_input", "project", "scores", "bias", "normalise", "outputs", "readout")

Projection = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Dims:
    """The attention site that an encoding serves, its sizes, and the positions of tokens."""

    site: str  # "encoder" | "decoder" (its self-attention) | "cross"
    layers: int  # that the encoding serves; hooks get a layer's number among these
    heads: int
    dim: int  # of the model
    head_dim: int
    vocab: int = 0  # word types of the side, for encodings that learn something per word
    positions: Positions = INDICES
    served_layers: tuple[int, ...] | None = None  # as the model counts, from 0; None: all

    @property
    def layer_numbers(self) -> Sequence[int]:
        """The layers that the encoding serves, as the model counts; hooks get an index of these."""
        return range(self.layers) if self.served_layers is None else self.served_layers


class Encoding(nn.Module):
    """A positional encoding of one attention site, which serves all its layers.

    A class sets the attributes below that differ, `relative = True`. What depends on options is set
    in its constructor, after `super().__init__(dims)`: `self.num_positions = size`.
    """

    sites: tuple[str, ...] = ("encoder", "decoder", "cross")  # where it makes sense

    # Positions
    relative: bool = False  # a common shift of all positions changes nothing (checked)
    position_type: str = "real"  # which positions it can read: "real", "integer" or "none"
    distances_only: bool = False  # it reads only distances, so trees and graphs can give them

    # Length
    num_positions: int | None = None  # hooks see 0 .. num_positions - 1 only; None: any
    longest_distance: int | None = None  # hooks see no greater one; None: any

    # Attention
    score_scale: float | None = None  # of q k; None: 1 / sqrt(head_dim)
    projects_keys: bool = True  # False: keys are slices of the input, without a projection
    changes_width: bool = False  # `project` makes queries and keys of another width
    reads_queries_or_keys: bool = True  # False: `scores` reads only their products
    reads_probabilities: bool = True  # False: `outputs` works with p=None
    streams: int = 1  # adjacent rows of the stack for each sentence, alike before `embed`

    # Inputs and training
    columns: frozenset[str] = frozenset()  # that it or its positions read; parallel to the source
    sentence_columns: frozenset[str] = frozenset()  # the columns with one integer per sentence
    column_ranges: Mapping[str, range] = {}  # integers that columns may hold; none: any
    needs_lengths: bool = False  # a decoder needs the desired length of its output
    zeros: tuple[str, ...] = ()  # parameters or modules: if all are 0, it changes nothing
    may_lack_gradients: bool = False  # some parameters or projections are not used

    hooks: ClassVar[tuple[str, ...]] = ()  # that the class overrides

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        if dims.site not in self.sites:
            only = ",".join(self.sites)
            raise ValueError(f"where={dims.site}: not for this encoding; give where=[{only}]")
        self.dims = dims
        self.positions = dims.positions
        self.columns = self.columns | self.positions.columns
        self.needs_lengths = self.needs_lengths or self.positions.needs_lengths
        self.name = type(self).__name__  # of its entry in the config; set by the builder

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.hooks = tuple(h for h in HOOKS if getattr(cls, h) is not getattr(Encoding, h))
        if {"scores", "normalise", "outputs"} & vars(cls).keys() and "by_distance" not in vars(cls):
            # a parent's would not know what the new hook does
            cls.by_distance = Encoding.by_distance  # type: ignore[method-assign]

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """Change the embeddings [batch, query, dim], once per stack, before dropout."""
        return x

    def layer_input(self, x: Tensor, layer: int, context: Context) -> Tensor:
        """Change the input [batch, query, dim] of every layer, residual path included."""
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Wrap the projections [batch, n, dim] -> q, k, v [batch, heads, n, head_dim].

        Keys are new ones only, and cached as returned. Inputs may be one tensor: write into none.
        """
        return project(xq, xk, xv)

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Change the raw products s = q k^T [batch, heads, query, key], before scaling.

        `s` may be written into: nothing else reads it. The result may be, too, by a later entry.
        """
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """Add [batch | 1, heads | 1, query | 1, key | 1] after scaling; q and k are not read."""
        return None

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """Make weights of scores e [batch, heads, query, key], scaled and with all biases.

        Replaces softmax, for one entry of a site. Keys where context.allowed is false get no
        weight.
        """
        return softmax(e, context.allowed)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """Change the heads' outputs o = p v [batch, heads, query, head_dim].

        Queries are projected from x [batch, query, dim]; probabilities p [batch, heads, query, key]
        after dropout are None only where `reads_probabilities` is False (fused attention).
        """
        return o

    def readout(self, x: Tensor, context: Context) -> Tensor:
        """Change the top of the stack [batch, query, dim], once."""
        return x

    def by_distance(self, layer: int, distances: Tensor) -> dict[str, Tensor] | None:
        """Vectors of a layer for distances [n], key minus query, by what they are added to.

        "keys", "values", ...: [heads | 1, n, width] each, for pictures and exports. None where
        `scores` or `outputs` do anything else: a subclass that overrides one must define it again.
        """
        return None

    def zero_initialise(self) -> bool:
        """Set the parameters so that the encoding changes nothing; False if that is impossible.

        Step 0 of a model to which this encoding was added then equals the model before.
        """
        zeros = tuple(f"{zero}." for zero in self.zeros)
        chosen = [p for name, p in self.named_parameters() if f"{name}.".startswith(zeros)]
        return bool(chosen) and set_to_zero(*chosen)

    def max_length(self, training: bool) -> int | None:
        """The longest sequence that can be encoded, in training or otherwise; None: any.

        0 where not even one token has a position that the encoding can read.
        """
        limit = self.positions.max_length(training)
        most = ENDLESS if limit is None else limit
        if self._fits(most, training):
            return limit
        lengths = range(1, most + 1)  # of which a longer one reaches no less far
        return bisect_left(lengths, True, key=lambda n: not self._fits(n, training))

    def _fits(self, length: int, training: bool) -> bool:
        """Whether tables hold all positions, or distances, that `length` tokens may get."""
        if self.num_positions is not None:
            positions = self.positions.position_range(length, training) or range(0)
            if positions.start < 0 or positions.stop > self.num_positions:
                return False
        longest = self.longest_distance  # without one, positions need not know their distances
        return longest is None or (self.positions.max_distance(length, training) or 0) <= longest

    @property
    def integers_of_columns(self) -> dict[str, range]:
        """The integers that columns may hold, where not all will do."""
        count = self.num_positions
        of_table = {} if count is None else self.positions.column_ranges(count)
        return of_table | dict(self.column_ranges)

    def make_table(
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


def set_to_zero(*parameters: Tensor) -> bool:
    """Set parameters to zero; returns True, as `zero_initialise` does."""
    with torch.no_grad():
        for p in parameters:
            p.zero_()
    return True


def softmax(e: Tensor, allowed: Tensor | None) -> Tensor:
    """Weights of e [batch, heads, query, key] over the keys where `allowed` is true; None: all."""
    return mask_scores(e, allowed).softmax(-1)


def mask_scores(e: Tensor, allowed: Tensor | None) -> Tensor:
    """Give forbidden keys a finite minimum: a row that may see nothing must not become NaN."""
    return e if allowed is None else e.masked_fill(~allowed, torch.finfo(e.dtype).min)


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is: bfloat16 is too coarse for sums of many numbers."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def least(limits: Iterable[int | None]) -> int | None:
    """The smallest of several limits; None: there is none."""
    return min((limit for limit in limits if limit is not None), default=None)


def common_ranges(several: Iterable[Mapping[str, range]]) -> dict[str, range]:
    """The integers that are within all ranges of a name."""
    common: dict[str, range] = {}
    for ranges in several:
        for name, values in ranges.items():
            before = common.get(name, values)
            common[name] = range(max(values.start, before.start), min(values.stop, before.stop))
    return common
