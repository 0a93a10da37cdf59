"""What one pass through a stack knows about where tokens stand."""

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import torch
from torch import Tensor

# Which side of a distance is subtracted from which; a learnt table only relabels its rows, fixed
# sinusoids flip their sines.
#   key - query   Shaw 2018, tensor2tensor, OpenNMT-py, CTranslate2, RETURNN, T5, and this house
#   query - key   Rosendahl 2019 (eq. 3-9: its j' is the query), DeBERTa, Transformer-XL


class Positions:
    """Which number a token gets: its index, unless a subclass says otherwise.

    Equal objects share their work within one pass.
    """

    integer: ClassVar[bool] = True  # tables can be indexed with the result

    def assign(self, index: Tensor, context: "Context") -> Tensor:
        """Map indices [batch | 1, length], counted from 0, to positions of the same shape."""
        return index


class Context:
    """Positions, mask and memory of one forward pass (or one decoding step) at one site.

    Axes: queries are the tokens that look, keys the tokens looked at; new keys are those whose
    projections are not cached yet (all of them, except while decoding).
    """

    def __init__(
        self,
        site: str,
        queries: Tensor,
        keys: Tensor,
        new_keys: Tensor,
        allowed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
        training: bool = False,
    ) -> None:
        self.site = site  # "encoder", "decoder" or "cross"
        self.queries = queries  # [batch | 1, query] positions
        self.keys = keys  # [batch | 1, key] positions, cached ones included
        self.new_keys = new_keys  # [batch | 1, new] positions of the keys that `project` sees
        self.allowed = allowed  # [batch | 1, 1, query, key], true where one may look; None: all
        self.lengths = lengths  # [batch] real tokens of each row; None: no padding
        self.state = state  # what recurrent encodings carry from step to step; None: no decoding
        self.training = training
        self._memo: dict[Hashable, Any] = {}

    def placed(self, positions: Positions) -> "Context":
        """The same pass with token indices turned into positions; one object per assignment."""

        def assign() -> Context:
            new = self.new_keys if self.new_keys is not self.queries else None
            queries = positions.assign(self.queries, self)
            return Context(
                self.site,
                queries,
                positions.assign(self.keys, self) if self.keys is not self.queries else queries,
                queries if new is None else positions.assign(new, self),
                self.allowed,
                self.lengths,
                self.state,
                self.training,
            )

        return self.once(positions, assign)

    @property
    def delta(self) -> Tensor:
        """Distances [batch | 1, query, key], **key minus query**."""
        return self.once("delta", lambda: self.keys[:, None, :] - self.queries[:, :, None])

    def clipped(self, tau: int) -> Tensor:
        """Row numbers 0..2 tau of a table of distances -tau..tau: [batch | 1, query, key]."""
        return self.once(("clipped", tau), lambda: self.delta.clamp(-tau, tau) + tau)

    def once(self, name: Hashable, make: Callable[[], Any]) -> Any:
        """Compute what is equal in every layer only once per pass."""
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]


def causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """The mask [1, 1, query, key] of a decoder whose last query stands at the last key."""
    ones = torch.ones(queries, keys, dtype=torch.bool, device=device)
    return ones.tril(keys - queries)[None, None]
