"""All encodings of one attention site as one, applied in the order of the config.

What a hook returns has the shape that `Encoding` documents, or a ValueError names it here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import Tensor, nn

from nmt.encodings import compatibility, limits
from nmt.encodings.base import Dims, Encoding, Projection, softmax
from nmt.encodings.context import Context
from nmt.encodings.passes import with_positions
from nmt.encodings.positions import Scaled

WEIGHTS = "[batch, heads, query, key]"  # axes


class Encodings(nn.Module):
    """Calls each encoding in turn; an empty list is attention without positions."""

    def __init__(self, entries: list[Encoding]) -> None:
        super().__init__()
        compatibility.check(entries)
        for e in entries:
            if (why := limits.why_too_short(e, 1)) is not None:
                raise ValueError(f"encoding.{e.name}: {why}")
        self.entries = nn.ModuleList(entries)

    def _entries_with(
        self, hook: str, context: Context, layer: int | None = None
    ) -> list[tuple[Encoding, int, Context]]:
        """The entries that override a hook and serve the layer, its number among those that each
        serves, and the context of their positions."""
        # of all entries, so that they draw random positions at the first hook
        entries = [(e, with_positions(context, e.positions)) for e in self]
        chosen = [(e, c) for e, c in entries if hook in e.hooks and serves(e, layer)]
        for e, c in chosen:
            if e.num_positions is not None:
                which = ("queries",) if hook == "embed" else ("queries", "keys")
                c.once(("within", id(e), which), partial(_check_positions, e, c, which))
        return [(e, _number(e, layer or 0), _of_layers(e, c)) for e, c in chosen]

    def __iter__(self) -> Iterator[Encoding]:
        return iter(cast(list[Encoding], list(self.entries)))

    def fusible(self, layer: int) -> bool:
        """Whether a fused kernel with an additive mask computes the same in a layer."""
        return not any(_changes_attention(e) and serves(e, layer) for e in self)

    @property
    def relative(self) -> bool:
        """Whether a common shift of all positions changes nothing (tested for every pair)."""
        return all(e.relative for e in self) and self.breaks_shift_invariance is None

    @property
    def breaks_shift_invariance(self) -> str | None:
        """Why relative entries depend on absolute positions together, in one sentence; or None."""
        if (two := compatibility.breaking_shift_invariance(list(self))) is None:
            return None
        rotary, reader = (e.name for e in two)
        return (
            f"{rotary} rotates queries and keys, and {reader} multiplies them with vectors that "
            "are not rotated: together they depend on absolute positions"
        )

    def max_length(self, training: bool) -> int | None:
        """The longest sequence that every entry can encode, in training or otherwise; None: any."""
        return limits.least(limits.max_length(e, training) for e in self)

    def scale(self, layer: int) -> float | None:
        """The factor on the scores of a layer, if an entry states one."""
        scales = (e.scale for e in self if serves(e, layer))
        return next((scale for scale in scales if scale is not None), None)

    @property
    def projects_keys(self) -> bool:
        """Whether attention needs a projection for its keys; false if some entry has none."""
        return all(e.projects_keys for e in self)

    @property
    def streams(self) -> int:
        """Rows that `embed` makes of each."""
        return max((e.streams for e in self), default=1)

    @property
    def needs_lengths(self) -> bool:
        """Whether some entry needs the desired length of a decoder's output."""
        return any(e.needs_lengths for e in self)

    def scale_positions(self, factor: float) -> bool:
        """Position interpolation: multiply all positions of training by a factor.

        Returns whether an entry reads any. Raises ValueError for one that cannot see positions
        between whole numbers.
        """
        reading = [e for e in self if e.position_type != "none"]
        for e in reading:  # all are checked first, so that a refusal changes nothing
            integer = e.position_type == "integer"
            if integer or e.positions.distances_only:
                edges = "its distances are counted along edges"
                why = "it knows whole positions only" if integer else edges
                raise ValueError(f"encoding.{e.name}: positions cannot be scaled, because {why}")
        for e in reading:
            before = e.positions.inner if isinstance(e.positions, Scaled) else e.positions
            e.positions = Scaled(before, factor)
        return bool(reading)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        """See `Encoding.embed`."""
        for e, _, c in self._entries_with("embed", context):
            batch, query, dim = x.shape
            axes = "[batch x streams, query, dim]"
            x = _checked(e, "embed", e.embed(x, c), (batch * e.streams, query, dim), axes)
        return x

    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        """See `Encoding.layer`."""
        for e, n, c in self._entries_with("layer", context, layer):
            x = _checked(e, "layer", e.layer(x, n, c), x.shape, "[batch, query, dim]")
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Encoding.project`; later entries wrap earlier ones."""
        for e, n, c in self._entries_with("project", context, layer):
            project = partial(_projected, e, project, n, c)
        return project(xq, xk, xv)

    def scores(self, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Raw scores of all pairs: q k^T, changed by each entry (`Encoding.scores`)."""
        s = q @ k.mT
        for e, n, c in self._entries_with("scores", context, layer):
            s = _checked(e, "scores", e.scores(s, q, k, n, c), s.shape, WEIGHTS)
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The sum of all biases; None if no entry has one."""
        total: Tensor | None = None
        for e, n, c in self._entries_with("bias", context, layer):
            if (bias := e.bias(n, c)) is not None:
                sizes = (c.rows, e.dims.heads, c.queries.shape[1], c.keys.shape[1])
                axes = "[batch | 1, heads | 1, query | 1, key | 1]"
                _checked(e, "bias", bias, sizes, axes, broadcast=True)
                total = bias if total is None else total + bias
        return total

    def normalise(self, s: Tensor, layer: int, context: Context) -> Tensor:
        """Weights of the scores s: softmax, or those of the entry that replaces it."""
        for e, n, c in self._entries_with("normalise", context, layer):
            return _checked(e, "normalise", e.normalise(s, n, c), s.shape, WEIGHTS)
        return softmax(s, context.allowed)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """The heads' outputs o = p v, changed by each entry (`Encoding.outputs`).

        p is None where attention is fused: then no entry reads it.
        """
        for e, n, c in self._entries_with("outputs", context, layer):
            shape, axes = o.shape, "[batch, heads, query, head_dim]"
            o = _checked(e, "outputs", e.outputs(o, x, p, n, c), shape, axes)
        return o

    def readout(self, x: Tensor, context: Context) -> Tensor:
        """See `Encoding.readout`."""
        for e, _, c in self._entries_with("readout", context):
            batch, query, dim = x.shape
            streams = e.streams if c.site == "decoder" else 1
            axes = "[batch, query, dim]"
            x = _checked(e, "readout", e.readout(x, c), (batch // streams, query, dim), axes)
        return x


def _check_positions(e: Encoding, context: Context, which: Sequence[str]) -> None:
    """Raise ValueError where positions of queries or keys may be outside the encoding's table."""
    count = e.num_positions
    for least, greatest in map(context.bounds, which):
        if count is not None and not 0 <= least <= greatest < count:
            raise ValueError(
                f"encoding.{e.name}: positions {least} to {greatest} are not all among the {count} "
                f"that it holds in the {e.dims.site}"
            )


def _projected(
    e: Encoding,
    project: Projection,
    layer: int,
    context: Context,
    xq: Tensor,
    xk: Tensor,
    xv: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as one entry makes them, with as many rows, heads and tokens."""
    q, k, v = e.project(project, xq, xk, xv, layer, context)
    heads, width = e.dims.heads, e.dims.head_dim
    axes = "[batch, heads, {}, width]"
    _checked(e, "project", q, (len(xq), heads, xq.shape[1], q.shape[-1]), axes.format("query"))
    _checked(e, "project", k, (len(xk), heads, xk.shape[1], q.shape[-1]), axes.format("key"))
    _checked(e, "project", v, (len(xv), heads, xv.shape[1], width), "[batch, heads, key, head_dim]")
    return q, k, v


def _checked(
    e: Encoding, hook: str, result: Tensor, shape: Sequence[int], axes: str, broadcast: bool = False
) -> Tensor:
    """The result of a hook; raises ValueError where its shape is another.

    With `broadcast` any axis may be 1, but none left out: torch would take another in its place,
    such as rows for heads.
    """
    returned = None if result is None else [*result.shape]
    sizes = list(zip(returned or [], shape, strict=False))
    fits = all(size == expected or (broadcast and size == 1) for size, expected in sizes)
    if not fits or returned is None or len(returned) != len(shape):
        raise ValueError(
            f"encoding.{e.name}: its `{hook}` returns {returned} in the {e.dims.site}; "
            f"expected {axes} = {[*shape]}"
        )
    return result


def _changes_attention(e: Encoding) -> bool:
    """Whether plain attention with an additive mask does not compute the same."""
    if "outputs" in e.hooks and e.reads_probabilities:
        return True
    return not {"scores", "normalise"}.isdisjoint(e.hooks)


def restricted(dims: Dims, layers: Any) -> Dims:
    """The sizes of an entry with `layers`, numbers of the stack's from 0; None: all of them.

    In other layers the entry does nothing. Its `Dims` count the layers that it serves, and its
    hooks get their number among these, so that it learns nothing for others. Raises ValueError for
    what is not a list of different numbers of that site.
    """
    if layers is None:
        return dims
    numbers = layers if isinstance(layers, Sequence) and not isinstance(layers, str) else []
    valid = [n for n in numbers if type(n) is int and 0 <= n < dims.layers]
    if not valid or len(set(valid)) != len(numbers):
        raise ValueError(
            f"layers={layers}: list different numbers from 0 to {dims.layers - 1}, as the site has "
            f"{dims.layers} layers ({dims.site}), for instance layers=[0]"
        )
    return replace(dims, layers=len(valid), served_layers=tuple(sorted(valid)))


def check_layers(e: Encoding) -> None:
    """Raise ValueError where an encoding cannot serve some layers only, as its `Dims` say."""
    if e.dims.served_layers is not None:
        if {*e.hooks} & {"embed", "readout"}:
            raise ValueError("layers: this encoding works on what enters or leaves all layers")
        if not e.projects_keys:
            raise ValueError("layers: without its key projection, keys are the same in all layers")


def serves(e: Encoding, layer: int | None) -> bool:
    """Whether an entry serves a layer of the model; None: the whole stack, which all do."""
    served = e.dims.served_layers
    return served is None or layer is None or layer in served


def _number(e: Encoding, layer: int) -> int:
    """The number of the model's layer among those that an entry serves."""
    served = e.dims.served_layers
    return layer if served is None else served.index(layer)


def _of_layers(e: Encoding, context: Context) -> Context:
    """The pass with the caches of the entry's layers only, numbered as its hooks number them."""
    served, caches = e.dims.served_layers, context.key_caches
    if served is None:
        return context

    def make() -> Context:
        of_served = None if caches is None else [caches[layer] for layer in served]
        return replace(context, key_caches=of_served, _memo={})

    return context.once(("layers", served), make)
