"""What one pass through a stack knows about where tokens stand."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor

# Which side of a distance is subtracted from which; a learned table only relabels its rows, fixed
# sinusoids flip their sines.
#   key - query   Shaw 2018, tensor2tensor, OpenNMT-py, CTranslate2, RETURNN, T5, and this house
#   query - key   Rosendahl 2019 (eq. 3-9: its j' is the query), DeBERTa, Transformer-XL, TENER,
#                 XLNet, CoPE, FIRE, iRPE


class Positions:
    """Which number a token gets: its index, unless a subclass says otherwise.

    Equal objects share their work, and their random draws, within one pass.
    """

    integer: ClassVar[bool] = True  # tables can be indexed with the result
    pairs: ClassVar[bool] = False  # only distances are defined (trees, graphs): see `distances`
    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder", "cross")  # where it makes sense

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns beside the text that are read."""
        return frozenset()

    @property
    def lengths(self) -> bool:
        """Whether context.lengths are read, which in a decoder are the desired ones."""
        return False

    @property
    def ascending(self) -> bool:
        """Whether no token stands further back than one before it; only asked in a decoder."""
        return True

    @property
    def consecutive(self) -> bool:
        """Whether each token stands one further than the one before it, whatever the text."""
        return type(self) is Positions

    def limit_in(self, training: bool) -> int | None:
        """The longest sequence that gets positions, in training or otherwise; None: any."""
        return None

    def reach(self, length: int, training: bool) -> range | None:
        """From the least to the greatest position that one of `length` tokens may get.

        None: unknown before the text is read. Only for integer positions.
        """
        return range(length)

    def apart(self, length: int, training: bool) -> int | None:
        """The greatest distance between two of `length` tokens; None as for `reach`."""
        reach = self.reach(length, training)
        return None if reach is None else len(reach) - 1

    def lowered(self, excess: int, training: bool) -> str | None:
        """The option that would lower the greatest position by `excess`, as key=value."""
        return None

    def column_ranges(self, num_positions: int) -> dict[str, range]:
        """The integers of columns that are positions of a table of so many rows."""
        return {}

    def assign(self, index: Tensor, context: "Context") -> Tensor:
        """Map indices [batch | 1, length], counted from 0, to positions of the same length."""
        return index

    def distances(self, context: "Context") -> Tensor:
        """Distances [batch | 1, query, key], key minus query, for positions that were assigned."""
        return context.keys[:, None, :] - context.queries[:, :, None]


class KeyMemory(Protocol):
    """What a decoder keeps of the keys that one layer has seen."""

    def remember(self, name: str, new: Tensor) -> Tensor:
        """Add [rows, any, new, width] under a name, and return all of that name."""


INDICES = Positions()  # each token stands where it is


@dataclass(eq=False)
class Context:
    """Positions, mask and memory of one forward pass (or one decoding step) at one site.

    Axes: queries are the tokens that attend, keys those attended to; new keys are those whose
    projections are not cached yet (all of them, except while decoding).
    """

    site: str  # "encoder", "decoder" or "cross"
    queries: Tensor  # [batch | 1, query] positions
    keys: Tensor  # [batch | 1, key] positions, cached ones included
    new_keys: Tensor  # [batch | 1, new] positions of the keys that `project` sees
    _: KW_ONLY
    rows: int = 1  # batch
    ends: tuple[int, int] | None = None  # tokens to the last query, and key, if the host knows
    copies: int = 1  # queries that stand at one place, as hypotheses of one source do
    allowed: Tensor | None = None  # [batch | 1, 1, query, key], true where one may look; None: all
    causal: bool = False  # allowed forbids a query the keys after it, and nothing else
    lengths: Tensor | None = None  # [batch] tokens, eos included; in a decoder the desired ones
    tokens: Tensor | None = None  # [batch, query] ids, where they are known
    columns: dict[str, Tensor] = field(default_factory=dict)  # [batch, source | 1] each
    state: dict[str, Tensor] | None = None  # of recurrent decoders; None: not decoding, or cross
    memories: Sequence[KeyMemory] | None = None  # by layer; None: not decoding, all keys are new
    training: bool = False
    positions: Positions = None  # type: ignore[assignment]  # at once INDICES
    _indices: tuple[Tensor, Tensor] | None = None  # of queries and keys, once they are placed
    _single: "Context | None" = None  # of rows side by side: the pass with one of each
    _memo: dict[Hashable, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An object as a default would break the graphs of torch.compile; a global one does not."""
        if self.positions is None:
            self.positions = INDICES

    def placed(self, positions: Positions) -> "Context":
        """The same pass with token indices turned into positions; one object per assignment."""

        def assign() -> Context:
            if self._single is not None:  # copies of a row stand where it stands
                return self._single.placed(positions).repeated(self.rows // self._single.rows)
            done: dict[int, Tensor] = {}  # equal tensors stay one object, and one random draw
            for index in (self.queries, self.keys, self.new_keys):
                if id(index) not in done:
                    done[id(index)] = positions.assign(index, self)
            queries, keys, new = (
                done[id(index)] for index in (self.queries, self.keys, self.new_keys)
            )
            return replace(
                self, queries=queries, keys=keys, new_keys=new, positions=positions,
                _indices=self.indices, _memo={},
            )  # fmt: skip

        return self.once(positions, assign)

    def repeated(self, streams: int) -> "Context":
        """The same pass for as many copies of each row, side by side: one draw serves them all."""

        def repeat(t: Tensor) -> Tensor:
            return t.repeat_interleave(streams, 0)

        def shared(t: Tensor) -> Tensor:
            return t if len(t) == 1 else repeat(t)  # holds for every row

        return replace(
            self,
            queries=shared(self.queries),
            keys=shared(self.keys),
            new_keys=shared(self.new_keys),
            _indices=(shared(self.indices[0]), shared(self.indices[1])),
            rows=self.rows * streams,
            allowed=None if self.allowed is None else shared(self.allowed),
            lengths=None if self.lengths is None else repeat(self.lengths),
            tokens=None if self.tokens is None else repeat(self.tokens),
            columns={name: repeat(column) for name, column in self.columns.items()},
            _single=self,
            _memo={},
        )

    def copy(self) -> "Context":
        """The same pass at this moment: what either of the two computes later, the other has not.

        For gradient checkpointing: see `nmt.model.recompute`.
        """
        memo = {k: v.copy() if isinstance(v, Context) else v for k, v in self._memo.items()}
        single = None if self._single is None else self._single.copy()
        return replace(self, _single=single, _memo=memo)

    def column(self, name: str) -> Tensor:
        """A column beside the text [batch, source | 1]; raises ValueError where it is missing."""
        if name not in self.columns:
            raise ValueError(f"the encoding reads a column {name!r}, which this text does not have")
        return self.columns[name]

    @property
    def indices(self) -> tuple[Tensor, Tensor]:
        """Queries and keys counted from 0 in their text, [batch | 1, n] each, wherever they stand.

        So the first token is known where positions start at 1, are shifted or change places.
        """
        return self._indices or (self.queries, self.keys)

    def bounds(self, which: str) -> tuple[int, int]:
        """The least and the greatest position that "queries" or "keys" may have.

        Where the host can know it (`ends`), nothing is read from a GPU, which would have to finish
        first; positions that are drawn then count as all that might have been drawn.
        """
        if self.ends is not None:
            end = self.ends[which == "keys"]
            if (reach := self.positions.reach(end, self.training)) is not None:
                return (reach[0], reach[-1]) if reach else (0, 0)
        at: Tensor = getattr(self, which)
        return (int(at.min()), int(at.max())) if at.numel() else (0, 0)

    def outermost(self) -> tuple[int, int]:
        """The least and the greatest position of queries and new keys together, as in `bounds`."""
        if self._in_a_row:
            counts = self.queries.shape[1] // self.copies, self.new_keys.shape[1]
            bounds = []
            for which, count, end in zip(("queries", "keys"), counts, self.ends or (), strict=True):
                least, greatest = self.bounds(
                    which
                )  # of all, while the last ones may be here alone
                bounds.append((least if count == end else greatest - count + 1, greatest, count))
            return (
                min(least for least, _, count in bounds if count),
                max(greatest for _, greatest, count in bounds if count),
            )
        at = torch.cat([self.queries.flatten(), self.new_keys.flatten()])
        return int(at.min()), int(at.max())

    def apart(self) -> int:
        """The greatest distance that a query may have from a key, known as in `bounds`."""
        if self.ends is not None:
            apart = self.positions.apart(max(self.ends), self.training)
            if apart is not None:
                return apart
        return int(self.delta.abs().max()) if self.delta.numel() else 0

    def refuse_beyond(self, holds: int, *which: str) -> None:
        """Raise ValueError where "queries" or "keys" may stand outside 0 .. holds - 1."""
        for least, greatest in map(self.bounds, which):
            if not 0 <= least <= greatest < holds:
                raise ValueError(
                    f"positions {least} to {greatest} are not all among the {holds} learned ones"
                )

    @property
    def consecutive(self) -> bool:
        """Whether the host knows that each token stands one further than the one before it.

        And all of them are here: while decoding, most of the queries are gone.
        """
        return self.trailing and self.ends is not None and self.queries.shape[1] == self.ends[0]

    @property
    def trailing(self) -> bool:
        """As `consecutive`, where queries may be the last tokens alone, as while decoding."""
        return self._in_a_row and self.copies == 1

    @property
    def _in_a_row(self) -> bool:
        """As `trailing`, where several queries may stand at each place."""
        if self.ends is None or 0 in self.ends:
            return False
        queries, keys = self.queries.shape[1] // self.copies, self.keys.shape[1]
        return 0 < queries <= self.ends[0] and keys == self.ends[1] and self.positions.consecutive

    @property
    def delta(self) -> Tensor:
        """Distances [batch | 1, query, key], **key minus query**."""
        return self.once("delta", lambda: self.positions.distances(self))

    def clipped(self, tau: int) -> Tensor:
        """Row numbers, from 0, of a table of distances -tau..tau: [batch | 1, query, key]."""
        return self.once(("clipped", tau), lambda: self.delta.clamp(-tau, tau) + tau)

    def remember(self, name: str, layer: int, new: Tensor) -> Tensor:
        """Keep what was computed of new keys [batch, any, new, width] for as long as the keys.

        Returns that of all keys [batch, any, key, width], which `recall` gives once more in this
        pass. Each site and layer has its own; an encoding takes its own name.
        """
        every = new if self.memories is None else self.memories[layer].remember(name, new)
        self._memo["remembered", name, layer] = every
        return every

    def recall(self, name: str, layer: int) -> Tensor:
        """The result of `remember` in this pass; raises ValueError where it was not called."""
        if (key := ("remembered", name, layer)) not in self._memo:
            raise ValueError(
                f"recall({name!r}, layer={layer}): nothing is remembered under this name in this "
                "pass; call context.remember in `project`, which comes first, at every step"
            )
        return cast(Tensor, self._memo[key])

    @property
    def has_remembered(self) -> bool:
        """Whether anything was remembered in this pass."""
        return any(isinstance(name, tuple) and name[0] == "remembered" for name in self._memo)

    def once(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Compute what is equal in every layer only once per pass."""
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """The mask [1, 1, query, key] of a decoder whose last query stands at the last key."""
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(keys - queries)[None, None]
