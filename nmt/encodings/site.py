"""All encodings of one attention site as one, applied in the order of the config.

Not all can be combined, and some that know distances alone depend on absolute positions together:
rotary turns queries and keys, but not the vectors r of Shaw et al. (2018), so q_i' . r depends on
the position i.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any, cast

from torch import Tensor, nn

from nmt.encodings.base import Dims, Encoding, Projection, least, softmax
from nmt.encodings.context import Context, with_positions
from nmt.encodings.positions import Scaled


class SiteEncodings(nn.Module):
    """Calls a hook of each encoding in turn; an empty list is attention without positions."""

    def __init__(self, entries: list[Encoding]) -> None:
        super().__init__()
        check_combination(entries)
        for entry in entries:
            if 0 in (entry.max_length(training) for training in (True, False)):
                fault = "not even one token has a position in its table"
                raise ValueError(f"encoding.{entry.name}: {fault}; enlarge it, or change at=")
        self.entries = nn.ModuleList(entries)

    def _entries_with(
        self, hook: str, context: Context, layer: int | None = None
    ) -> list[tuple[Encoding, int, Context]]:
        """Entries with a hook that serve a layer, its number among theirs, and their context."""
        if hook != "embed" and not any(hook in entry.hooks for entry in self):
            return []
        # at the first hook all entries draw their random positions
        passes = [(entry, with_positions(context, entry.positions)) for entry in self]
        chosen = []
        for entry, own_pass in passes:
            served = entry.dims.layer_numbers
            if hook in entry.hooks and (layer is None or layer in served):
                if entry.num_positions is not None:
                    _check_positions(entry, own_pass, hook, entry.num_positions)
                number = 0 if layer is None else served.index(layer)
                chosen.append((entry, number, _restrict_caches(entry, own_pass)))
        return chosen

    def __iter__(self) -> Iterator[Encoding]:
        return cast(Iterator[Encoding], iter(self.entries))

    def fusible(self, layer: int) -> bool:
        """Whether a fused kernel with an additive mask computes the same in a layer."""
        return not any(
            _changes_attention(entry) and layer in entry.dims.layer_numbers for entry in self
        )

    def max_length(self, training: bool) -> int | None:
        """The longest sequence that every entry can encode, in training or otherwise; None: any."""
        return least(entry.max_length(training) for entry in self)

    def score_scale(self, layer: int) -> float | None:
        """The factor on the scores of a layer, if an entry states one."""
        serving = (entry for entry in self if layer in entry.dims.layer_numbers)
        return next((entry.score_scale for entry in serving if entry.score_scale is not None), None)

    def scale_positions(self, factor: float) -> bool:
        """Position interpolation: multiply all positions of training by a factor.

        Returns whether an entry reads any. Raises ValueError for one that cannot see positions
        between whole numbers.
        """
        reading = [entry for entry in self if entry.position_type != "none"]
        for entry in reading:  # all are checked first, so that a refusal changes nothing
            why = "it knows whole positions only" if entry.position_type == "integer" else ""
            if entry.positions.distances_only:
                why = why or "its distances are counted along edges"
            if why:
                where = f"encoding.{entry.name}"
                raise ValueError(f"{where}: positions cannot be scaled, because {why}")
        for entry in reading:
            before = entry.positions
            inner = before.inner if isinstance(before, Scaled) else before
            entry.positions = Scaled(inner, factor)
        return bool(reading)

    def embed(self, x: Tensor, context: Context) -> Tensor:
        for entry, _, c in self._entries_with("embed", context):
            x = entry.embed(x, c)
        return x

    def layer_input(self, x: Tensor, layer: int, context: Context) -> Tensor:
        for entry, n, c in self._entries_with("layer_input", context, layer):
            x = entry.layer_input(x, n, c)
        return x

    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; later entries wrap the projections of earlier ones."""
        for entry, n, c in self._entries_with("project", context, layer):
            project = _wrap(entry, project, n, c)
        return project(xq, xk, xv)

    def scores(self, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """Raw scores of all pairs: q k^T, changed by each entry."""
        s = q @ k.mT
        for entry, n, c in self._entries_with("scores", context, layer):
            s = entry.scores(s, q, k, n, c)
        return s

    def bias(self, layer: int, context: Context) -> Tensor | None:
        """The sum of all biases; None if no entry has one."""
        total: Tensor | None = None
        for entry, n, c in self._entries_with("bias", context, layer):
            if (bias := entry.bias(n, c)) is not None:
                total = bias if total is None else total + bias
        return total

    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        """Weights of the scores e: of softmax, or of the entry that replaces it."""
        for entry, n, c in self._entries_with("normalise", context, layer):
            return entry.normalise(e, n, c)
        return softmax(e, context.allowed)

    def outputs(
        self, o: Tensor, x: Tensor, p: Tensor | None, layer: int, context: Context
    ) -> Tensor:
        """The heads' outputs o = p v; p is None where attention is fused: no entry reads it."""
        for entry, n, c in self._entries_with("outputs", context, layer):
            o = entry.outputs(o, x, p, n, c)
        return o

    def readout(self, x: Tensor, context: Context) -> Tensor:
        for entry, _, c in self._entries_with("readout", context):
            x = entry.readout(x, c)
        return x


def _wrap(entry: Encoding, inner: Projection, layer: int, context: Context) -> Projection:
    """The projection that the `project` hook of an entry makes of an inner one."""
    return lambda xq, xk, xv: entry.project(inner, xq, xk, xv, layer, context)


def _check_positions(entry: Encoding, context: Context, hook: str, count: int) -> None:
    """Raise ValueError where positions that a hook reads may be outside a table of `count` rows."""

    def check() -> None:
        for which in ("query_positions", "key_positions")[: 1 if hook == "embed" else 2]:
            least, greatest = context.bounds(which)
            if not 0 <= least <= greatest < count:
                raise ValueError(
                    f"encoding.{entry.name}: positions {least} to {greatest} are not all among "
                    f"the {count} that it holds in the {entry.dims.site}"
                )

    context.once(("positions checked", id(entry), hook == "embed"), check)


def _changes_attention(entry: Encoding) -> bool:
    """Whether plain attention with an additive mask does not compute the same."""
    if "outputs" in entry.hooks and entry.reads_probabilities:
        return True
    return not {"scores", "normalise"}.isdisjoint(entry.hooks)


def restrict(dims: Dims, layers: Any) -> Dims:
    """The sizes of an entry that serves some layers of a site, as numbers from 0; None: all.

    Its tables have rows for these layers only. Raises ValueError for what is no list of different
    numbers of the site's layers.
    """
    if layers is None:
        return dims
    numbers = layers if isinstance(layers, Sequence) and not isinstance(layers, str) else []
    valid = [n for n in numbers if type(n) is int and 0 <= n < dims.layers]
    if not valid or len(set(valid)) != len(numbers):
        raise ValueError(
            f"layers={layers}: list different numbers from 0 to {dims.layers - 1}, for instance "
            f"layers=[0]; the {dims.site} has {dims.layers} layers"
        )
    return replace(dims, layers=len(valid), served_layers=tuple(sorted(valid)))


def check_layers(entry: Encoding) -> None:
    """Raise ValueError where an encoding cannot serve some layers only, as its `Dims` say."""
    if entry.dims.served_layers is not None:
        if {*entry.hooks} & {"embed", "readout"}:
            raise ValueError("layers: this encoding works on what enters or leaves all layers")
        if not entry.projects_keys:
            raise ValueError("layers: without its key projection, keys are the same in all layers")


def _restrict_caches(entry: Encoding, context: Context) -> Context:
    """The pass with the caches of the entry's layers only, as its hooks number layers."""
    served, caches = entry.dims.served_layers, context.key_caches
    if served is None:
        return context

    def make() -> Context:
        of_served = None if caches is None else [caches[layer] for layer in served]
        return replace(context, key_caches=of_served, _memo={})

    return context.once(("layers", served), make)


def check_combination(entries: Sequence[Encoding]) -> None:
    """Raise ValueError for entries that cannot be combined, with what to do."""
    embedding = [entry.name for entry in entries if "embed" in entry.hooks]
    if len(embedding) > 1 and any(entry.streams > 1 for entry in entries):
        several = ", ".join(embedding)
        raise ValueError(f"encoding: one entry must make all embeddings complex, not {several}")
    for (i, entry), (j, other) in permutations(enumerate(entries), 2):
        layers, others_layers = ({*e.dims.layer_numbers} for e in (entry, other))
        if layers.isdisjoint(others_layers):
            continue
        names = f"{entry.name} and {other.name}"
        if len({entry.score_scale, other.score_scale} - {None}) > 1:
            fault = f"more than one entry sets the scale of the scores, {names}; leave one out"
            raise ValueError(f"encoding: {fault}")
        if "normalise" in entry.hooks and "normalise" in other.hooks:
            raise ValueError(f"encoding: only one entry can replace softmax, not {names}")
        if entry.changes_width:
            _check_width(entry, other, later=j > i)
        if entry.may_lack_gradients and others_layers <= layers:
            _check_effect(entry, other, earlier=j < i)


def _check_width(entry: Encoding, other: Encoding, later: bool) -> None:
    """Refuse another entry that reads queries and keys, where features of another width stand."""
    reads = "scores" in other.hooks and other.reads_queries_or_keys
    if other.changes_width or reads or (later and "project" in other.hooks):
        raise ValueError(
            f"encoding.{other.name}: reads queries and keys, but encoding.{entry.name} turns them "
            f"into features for their product alone; name {entry.name} last, or leave one out"
        )


def _check_effect(entry: Encoding, other: Encoding, earlier: bool) -> None:
    """Refuse another entry if the first, which ignores queries or keys, replaces all it changes.

    With parameters and `project` the other may change values as well, which the first reads; if it
    does not, the first step of training finds that it gets no gradient.
    """
    replaced = {"scores"} if earlier else set()
    if "normalise" in entry.hooks:
        replaced = {"scores", "bias"}
    if not entry.reads_queries_or_keys:
        replaced |= {"project"}
    may_change_values = "project" in other.hooks and any(True for _ in other.parameters())
    if other.hooks and replaced.issuperset(other.hooks) and not may_change_values:
        raise ValueError(
            f"encoding.{other.name}: changes nothing, because encoding.{entry.name} does not read "
            "what it changes; leave one of the two out"
        )


def unread_projections(entries: Sequence[Encoding]) -> set[str]:
    """Which of "query" and "key" attention needs no projections for, as no entry reads them."""
    for entry in entries:
        alone = all(o is entry or {"project", "scores"}.isdisjoint(o.hooks) for o in entries)
        if entry.may_lack_gradients and alone and entry.dims.served_layers is None:
            return {"key"} if entry.reads_queries_or_keys else {"key", "query"}
    return set()
