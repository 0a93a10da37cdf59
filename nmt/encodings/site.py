"""All encodings of one attention site as one, applied in the order of the config.

Not all can be combined, and some then depend on absolute positions. A product q . k of rotated
vectors (rotary) depends on the distance alone, because both are rotated. A vector that is
multiplied with only one of the two, such as the keys of Shaw et al. (2018) or the u of
Transformer-XL, is not rotated with it: q_i' . r then depends on the position i. So does a product
with a number for each component, where the components of a plane get different numbers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, cast

from torch import Tensor, nn

from nmt.encodings import limits
from nmt.encodings.base import Dims, Encoding, Projection, softmax
from nmt.encodings.context import Context
from nmt.encodings.passes import with_positions
from nmt.encodings.positions import Scaled

MADE = {"project": "queries and keys", "scores": "scores", "bias": "biases"}  # by hooks


class Encodings(nn.Module):
    """Calls a hook of each encoding in turn; an empty list is attention without positions."""

    def __init__(self, entries: list[Encoding]) -> None:
        super().__init__()
        check_combination(entries)
        for e in entries:
            if (why := limits.why_too_short(e, 1)) is not None:
                raise ValueError(f"encoding.{e.name}: {why}")
        self.entries = nn.ModuleList(entries)

    def _entries_with(
        self, hook: str, context: Context, layer: int | None = None
    ) -> list[tuple[Encoding, int, Context]]:
        """Entries with a hook that serve a layer, each with its number of it and its context."""
        if hook != "embed" and not any(hook in e.hooks for e in self):
            return []
        # of all entries, so that they draw random positions at the first hook
        entries = [(e, with_positions(context, e.positions)) for e in self]
        chosen = []
        for e, c in entries:
            served = e.dims.layer_numbers
            if hook not in e.hooks or (layer is not None and layer not in served):
                continue
            if e.num_positions is not None:
                which = ("queries",) if hook == "embed" else ("queries", "keys")
                c.once(("within", id(e), which), partial(_check_positions, e, c, which))
            number = 0 if layer is None else served.index(layer)
            chosen.append((e, number, _keep_caches(e, c)))
        return chosen

    def __iter__(self) -> Iterator[Encoding]:
        return cast(Iterator[Encoding], iter(self.entries))

    def fusible(self, layer: int) -> bool:
        """Whether a fused kernel with an additive mask computes the same in a layer."""
        return not any(_changes_attention(e) and layer in e.dims.layer_numbers for e in self)

    @property
    def relative(self) -> bool:
        """Whether a common shift of all positions changes nothing (tested for every pair)."""
        return all(e.relative for e in self) and self.breaks_shift_invariance is None

    @property
    def breaks_shift_invariance(self) -> str | None:
        """Why relative entries depend on absolute positions together, in one sentence; or None."""
        if (two := find_shift_breaking(list(self))) is None:
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
        serving = (e for e in self if layer in e.dims.layer_numbers)
        return next((e.scale for e in serving if e.scale is not None), None)

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
        for e, _, c in self._entries_with("embed", context):
            x = e.embed(x, c)
        return x

    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        for e, n, c in self._entries_with("layer", context, layer):
            x = e.layer(x, n, c)
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; later entries wrap the projections of earlier ones."""
        for e, n, c in self._entries_with("project", context, layer):
            project = partial(_project, e, project, n, c)
        return project(xq, xk, xv)

    def scores(self, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Raw scores of all pairs: q k^T, changed by each entry."""
        s = q @ k.mT
        for e, n, c in self._entries_with("scores", context, layer):
            s = e.scores(s, q, k, n, c)
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The sum of all biases; None if no entry has one."""
        total: Tensor | None = None
        for e, n, c in self._entries_with("bias", context, layer):
            if (bias := e.bias(n, c)) is not None:
                total = bias if total is None else total + bias
        return total

    def normalise(self, s: Tensor, layer: int, context: Context) -> Tensor:
        """Weights of the scores s: softmax, or those of the entry that replaces it."""
        for e, n, c in self._entries_with("normalise", context, layer):
            return e.normalise(s, n, c)
        return softmax(s, context.allowed)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """The heads' outputs o = p v; p is None where attention is fused: no entry reads it."""
        for e, n, c in self._entries_with("outputs", context, layer):
            o = e.outputs(o, x, p, n, c)
        return o

    def readout(self, x: Tensor, context: Context) -> Tensor:
        for e, _, c in self._entries_with("readout", context):
            x = e.readout(x, c)
        return x


def _project(
    e: Encoding, inner: Projection, layer: int, context: Context, xq: Tensor, xk: Tensor, xv: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return e.project(inner, xq, xk, xv, layer, context)


def _check_positions(e: Encoding, context: Context, which: Sequence[str]) -> None:
    """Raise ValueError where positions of queries or keys may be outside the encoding's table."""
    count = e.num_positions
    for least, greatest in map(context.bounds, which):
        if count is not None and not 0 <= least <= greatest < count:
            raise ValueError(
                f"encoding.{e.name}: positions {least} to {greatest} are not all among the {count} "
                f"that it holds in the {e.dims.site}"
            )


def _changes_attention(e: Encoding) -> bool:
    """Whether plain attention with an additive mask does not compute the same."""
    if "outputs" in e.hooks and e.reads_probabilities:
        return True
    return not {"scores", "normalise"}.isdisjoint(e.hooks)


def restrict(dims: Dims, layers: Any) -> Dims:
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


def _keep_caches(e: Encoding, context: Context) -> Context:
    """The pass with the caches of the entry's layers only, numbered as its hooks number them."""
    served, caches = e.dims.served_layers, context.key_caches
    if served is None:
        return context

    def make() -> Context:
        of_served = None if caches is None else [caches[layer] for layer in served]
        return replace(context, key_caches=of_served, _memo={})

    return context.once(("layers", served), make)


def check_combination(entries: Sequence[Encoding]) -> None:
    """Raise ValueError for entries that cannot be combined, with what to do."""
    for one, other in combinations(entries, 2):
        if not _meet(one, other):
            continue
        names = f"{one.name} and {other.name}"
        if None not in (one.scale, other.scale) and one.scale != other.scale:
            raise ValueError(
                "encoding: more than one entry sets the scale of the scores, "
                f"{names}; leave one out"
            )
        if "normalise" in one.hooks and "normalise" in other.hooks:
            raise ValueError(f"encoding: only one entry can take the place of softmax, not {names}")
    embedding = [e.name for e in entries if "embed" in e.hooks]
    if len(embedding) > 1 and any(e.streams > 1 for e in entries):
        several = ", ".join(embedding)
        raise ValueError(f"encoding: one entry must make all embeddings complex, not {several}")
    for i, e in enumerate(entries):
        if e.changes_width:
            met = [o for o in entries if o is not e and _meet(e, o)]
            _check_width(e, met, [o for o in entries[i + 1 :] if _meet(e, o)])
        if e.may_lack_gradients:
            for number, other in enumerate(entries):
                if number != i and {*other.dims.layer_numbers} <= {*e.dims.layer_numbers}:
                    _check_effect(e, other, earlier=number < i)


def _check_width(e: Encoding, others: Sequence[Encoding], later: Sequence[Encoding]) -> None:
    """Refuse others that read queries and keys, where features of another width replace them."""
    for other in others:
        if other.changes_width or _reads(other):
            does = "makes features of" if other.changes_width else "reads"
            raise ValueError(
                f"encoding.{other.name}: {does} queries and keys, but encoding.{e.name} turns them "
                "into features that only their product can read; leave one of the two out"
            )
    for other in later:
        if "project" in other.hooks:
            raise ValueError(
                f"encoding.{other.name}: changes queries and keys, of which encoding.{e.name} has "
                f"made features already; name {e.name} last"
            )


def _check_effect(e: Encoding, other: Encoding, earlier: bool) -> None:
    """Refuse another entry if e, which ignores queries or keys, replaces all that it changes.

    An entry with parameters and `project` may change values as well, which e reads; if it does not,
    the first step of training finds that it gets no gradient.
    """
    replaced = {"scores", "bias"} if "normalise" in e.hooks else {"scores"} if earlier else set()
    if not e.reads_queries_or_keys:
        replaced |= {"project"}
    may_change_values = "project" in other.hooks and any(True for _ in other.parameters())
    if other.hooks and replaced.issuperset(other.hooks) and not may_change_values:
        made = " and ".join(MADE[hook] for hook in other.hooks)
        raise ValueError(
            f"encoding.{other.name}: changes nothing, because encoding.{e.name} does not read its "
            f"{made}; leave one of the two out"
        )


def unread_projections(entries: Sequence[Encoding]) -> set[str]:
    """Which of "query" and "key" attention needs no projections for, as no entry reads them."""
    for e in entries:
        alone = all(o is e or {"project", "scores"}.isdisjoint(o.hooks) for o in entries)
        if e.may_lack_gradients and alone and e.dims.served_layers is None:
            return {"key"} if e.reads_queries_or_keys else {"key", "query"}
    return set()


def find_shift_breaking(entries: Sequence[Encoding]) -> tuple[Encoding, Encoding] | None:
    """The first two relative entries that together depend on absolute positions, or None."""
    for one, other in combinations([e for e in entries if e.relative], 2):
        if not _meet(one, other):
            continue
        # rotations by words may come first: those of query and key by position then meet
        if _by_position(one) and not _commute(one.rotation_planes, other.rotation_planes):
            return one, other
        for rotary, reader in ((one, other), (other, one)):
            if _by_position(rotary) and _reads(reader):
                return rotary, reader
    return None


def _meet(one: Encoding, other: Encoding) -> bool:
    """Whether two entries serve a layer both."""
    return not {*one.dims.layer_numbers}.isdisjoint(other.dims.layer_numbers)


def _by_position(e: Encoding) -> bool:
    """Whether it rotates queries and keys by their position, not by their words."""
    return bool(e.rotation_planes) and e.position_type != "none"


def _reads(e: Encoding) -> bool:
    """Whether `scores` reads queries or keys other than by their product."""
    return "scores" in e.hooks and e.reads_queries_or_keys


def _commute(one: frozenset[frozenset[int]], other: frozenset[frozenset[int]]) -> bool:
    """Whether the order of two rotations does not matter."""
    return all(a == b or not a & b for a in one for b in other)
