"""One pass through a stack, as an encoding sees it: positions of tokens, mask, and memory.

The functions below Context make contexts for the model, and for tests.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

# The sign of a distance: a learned table only relabels its rows, fixed
# sinusoids flip their sines.
#   key - query   Shaw 2018, tensor2tensor, OpenNMT-py, CTranslate2, RETURNN, T5, and nmt
#   query - key   Rosendahl 2019 (eq. 3-9: its j' is the query), DeBERTa, Transformer-XL, TENER,
#                 XLNet, CoPE, FIRE, iRPE


class Positions:
    """The position of each token: its index, unless a subclass overrides `assign`.

    In one pass, equal objects are computed, and drawn at random, only once.
    """

    integer: ClassVar[bool] = True  # tables can be indexed with the result
    distances_only: ClassVar[bool] = False  # as in trees and graphs: see `distances`
    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder", "cross")  # where it makes sense

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns parallel to the text that are read."""
        return frozenset()

    @property
    def needs_lengths(self) -> bool:
        """Whether context.lengths are read, which in a decoder are the desired ones."""
        return False

    @property
    def ascending(self) -> bool:
        """Whether no position is lower than the one before it; read only of a decoder's."""
        return True

    @property
    def consecutive(self) -> bool:
        """Whether positions of adjacent tokens differ by 1, for every text."""
        return type(self) is Positions

    def max_length(self, training: bool) -> int | None:
        """The longest sequence that gets positions, in training or otherwise; None: any."""
        return None

    def position_range(self, length: int, training: bool) -> range | None:
        """From the least to the greatest position that one of `length` tokens may get.

        None: unknown before the text is read. Only for integer positions.
        """
        return range(length)

    def max_distance(self, length: int, training: bool) -> int | None:
        """The greatest distance between two of `length` tokens; None as for `position_range`."""
        positions = self.position_range(length, training)
        return None if positions is None else len(positions) - 1

    def column_ranges(self, num_positions: int) -> dict[str, range]:
        """The integers of columns that are positions of a table of so many rows."""
        return {}

    def assign(self, index: Tensor, context: "Context") -> Tensor:
        """Map indices [batch | 1, length], counted from 0, to positions of the same length."""
        return index

    def distances(self, context: "Context") -> Tensor:
        """Distances [batch | 1, query, key], key minus query, for positions that were assigned."""
        return context.key_positions[:, None, :] - context.query_positions[:, :, None]


class KeyCache(Protocol):
    """Values per key that a decoder caches, of one layer."""

    def remember(self, name: str, new: Tensor) -> Tensor:
        """Add [rows, any, new, width] under a name, and return all of that name."""


INDICES = Positions()  # counted from 0


@dataclass(eq=False)
class Context:
    """Positions, mask and memory of one forward pass (or one decoding step) at one site.

    Axes: queries are the tokens that attend, keys those attended to; new keys are those whose
    projections are not cached yet (all of them, except while decoding).
    """

    site: str  # "encoder", "decoder" or "cross"
    query_positions: Tensor  # [batch | 1, query]
    key_positions: Tensor  # [batch | 1, key], cached ones included
    new_key_positions: Tensor  # [batch | 1, new] of the keys that `project` sees
    _: KW_ONLY
    rows: int = 1  # batch
    streams: int = 1  # adjacent rows of one sentence; see `draw`
    allowed: Tensor | None = None  # [batch | 1, 1, query, key], true where one may look; None: all
    # [batch] tokens, eos included: of the source in the encoder, else of the output; while decoding
    # the desired ones, or None where none are desired
    lengths: Tensor | None = None
    tokens: Tensor | None = None  # [batch, query] ids; None: unknown
    columns: dict[str, Tensor] = field(default_factory=dict)  # [batch, source | 1] each
    # [hypothesis, ...] what later steps need; None: not decoding. Self- and cross-attention share
    # it, so names in it tell entry and site
    state: dict[str, Tensor] | None = None
    training: bool = False
    positions: Positions = None  # type: ignore[assignment]  # None becomes INDICES
    beams: int = 1  # queries with the same position: the hypotheses of one source
    # what the model needs, and few encodings:
    query_end: int | None = None  # tokens up to the last query, if keys are counted from the first
    causal: bool = False  # allowed forbids a query the keys after it, and nothing else
    key_caches: Sequence[KeyCache] | None = None  # by layer; None: not decoding, all keys are new
    # of queries and keys, if positions differ from them
    _indices: tuple[Tensor, Tensor] | None = None
    _memo: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.positions is None:  # an object as the field's own breaks graphs of torch.compile
            self.positions = INDICES

    @property
    def delta(self) -> Tensor:
        """Distances [batch | 1, query, key], **key minus query**."""
        return self.once("delta", lambda: self.positions.distances(self))

    def clipped(self, tau: int) -> Tensor:
        """Row numbers, from 0, of a table of distances -tau..tau: [batch | 1, query, key]."""
        return self.once(("clipped", tau), lambda: self.delta.clamp(-tau, tau) + tau)

    @property
    def indices(self) -> tuple[Tensor, Tensor]:
        """Queries and keys counted from 0 in their text, [batch | 1, n] each, at any positions.

        So the first token is index 0 where positions start at 1, are shifted or reordered.
        """
        return self._indices or (self.query_positions, self.key_positions)

    def column(self, name: str) -> Tensor:
        """A column parallel to the source [batch, source | 1]; ValueError where it is missing."""
        if name not in self.columns:
            raise ValueError(f"the encoding reads a column {name!r}, which this text does not have")
        return self.columns[name]

    def remember(self, name: str, layer: int, new: Tensor) -> Tensor:
        """Cache values computed from new keys [batch, any, new, width], for as long as the keys.

        Returns the values of all keys [batch, any, key, width]; `recall` returns them again in this
        pass. Sites and layers do not share names; an encoding uses `self.name`. Raises ValueError
        for another number of axes.
        """
        if new.dim() != 4:
            raise ValueError(
                f"remember({name!r}): {[*new.shape]} is not [batch, any, new, width]; add axes of 1"
            )
        every = new if self.key_caches is None else self.key_caches[layer].remember(name, new)
        self._memo["remembered", name, layer] = every
        return every

    def recall(self, name: str, layer: int) -> Tensor:
        """The result of `remember` in this pass; raises ValueError if it was not called."""
        if ("remembered", name, layer) not in self._memo:
            raise ValueError(
                f"recall({name!r}, layer={layer}): nothing was remembered under this name in this "
                "pass; call context.remember in `project`, which runs before the other hooks"
            )
        return cast(Tensor, self._memo["remembered", name, layer])

    def attended_before(self, name: str, layer: int, weights: Tensor) -> Tensor:
        """Sum weights [batch, any, query, key] over the queries before each, of all steps so far.

        For cross-attention, whose keys stay; the sums follow their hypothesis through a search.
        """
        # [batch, beam, any, new, key]
        by_beam = weights.unflatten(2, (self.beams, -1)).transpose(1, 2)
        sums = by_beam.cumsum(3)
        before = sums - by_beam
        if self.state is not None:
            key, total = f"{self.site}.{name}.{layer}", sums[:, :, :, -1]
            if key in self.state:  # [row, any, key], rows as the search orders them
                earlier = self.state[key].view_as(total)
                before, total = before + earlier[:, :, :, None], total + earlier
            self.state[key] = total.flatten(0, 1)
        return before.transpose(1, 2).flatten(2, 3)

    def once(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Compute what all layers share only once per pass.

        All entries of the site share the names, so one entry uses `("mine", id(self))`.
        """
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]

    def draw(self, make: Callable[[int], Tensor]) -> Tensor:
        """Random numbers [batch, ...]: `make(rows)` draws them for so many rows.

        With complex embeddings, the adjacent rows of a sentence share them.
        """
        numbers = make(self.rows // self.streams)
        return numbers if self.streams == 1 else numbers.repeat_interleave(self.streams, 0)

    def bounds(self, which: str) -> tuple[int, int]:
        """The least and the greatest number among "query_positions" or "key_positions".

        With `query_end`, nothing is read from a GPU, which would have to finish first; of positions
        that are drawn, these are the bounds of the whole range.
        """
        at: Tensor = getattr(self, which)
        if self.query_end is not None:
            end = at.shape[1] if which == "key_positions" else self.query_end
            if (positions := self.positions.position_range(end, self.training)) is not None:
                return (positions[0], positions[-1]) if positions else (0, 0)
        return (int(at.min()), int(at.max())) if at.numel() else (0, 0)

    def max_distance(self) -> int:
        """The greatest distance that a query and a key may have; see `bounds`."""
        if self.query_end is not None:
            tokens = max(self.query_end, self.key_positions.shape[1])
            if (distance := self.positions.max_distance(tokens, self.training)) is not None:
                return distance
        return int(self.delta.abs().max()) if self.delta.numel() else 0

    @property
    def consecutive_end(self) -> int | None:
        """Tokens up to the last query if positions are consecutive, as in most passes; or None."""
        if 0 in (self.query_positions.shape[1], self.key_positions.shape[1]):
            return None
        return None if self.beams > 1 or not self.positions.consecutive else self.query_end


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """The mask [1, 1, query, key] of a decoder whose last query is at the last key."""
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(keys - queries)[None, None]


def whole(
    site: str,
    queries: int,
    keys: int | None = None,
    device: torch.device | None = None,
    **fields: Any,
) -> Context:
    """A pass over all tokens of a text, which attend to each other or to `keys` tokens of another.

    `fields`: further fields of the Context.
    """
    at = torch.arange(queries, device=device)[None]
    all_keys = at if keys is None else torch.arange(keys, device=device)[None]
    return Context(site, at, all_keys, all_keys, query_end=queries, **fields)


def decoding_step(site: str, before: int, new: int, device: torch.device, **fields: Any) -> Context:
    """A step of decoding: `new` tokens attend to all tokens; those before them are cached."""
    keys = torch.arange(before + new, device=device)[None]
    queries = keys[:, before:]
    return Context(site, queries, keys, queries, query_end=before + new, **fields)


def cross_step(decoder: Context, source: int, beams: int, cached: bool, **fields: Any) -> Context:
    """A step of cross-attention: the new tokens of a decoder attend to `source` tokens.

    The `beams` hypotheses of one source are queries of one row. `cached`: its keys are cached.
    """
    keys = torch.arange(source, device=decoder.query_positions.device)[None]
    return Context(
        "cross",
        query_positions=decoder.query_positions.repeat(1, beams),
        key_positions=keys,
        new_key_positions=keys[:, :0] if cached else keys,
        beams=beams,
        query_end=decoder.query_end,
        **fields,
    )


def with_positions(context: Context, positions: Positions) -> Context:
    """The same pass with positions instead of token indices; entries with equal ones share it."""

    def assign() -> Context:
        assigned: list[tuple[Tensor, Tensor]] = []

        def at(index: Tensor) -> Tensor:
            # one tensor stays one object, and gets one random draw; compared by `is`, because a
            # graph of torch.compile cannot hold id() of a tensor in torch 2.11
            for other, result in assigned:
                if other is index:
                    return result
            assigned.append((index, positions.assign(index, context)))
            return assigned[-1][1]

        return replace(
            context,
            query_positions=at(context.query_positions),
            key_positions=at(context.key_positions),
            new_key_positions=at(context.new_key_positions),
            positions=positions,
            _indices=context.indices,
            _memo={},
        )

    return context.once(positions, assign)


def copy_pass(context: Context) -> Context:
    """A copy for gradient checkpointing: values computed later are in one of the two only."""
    memo = {k: copy_pass(v) if isinstance(v, Context) else v for k, v in context._memo.items()}
    return replace(context, _memo=memo)


def list_computed(context: Context) -> set[str]:
    """Names of what was computed for a pass so far: "delta" (distances), "remembered", ..."""
    return {str(name[0] if isinstance(name, tuple) else name) for name in context._memo}
