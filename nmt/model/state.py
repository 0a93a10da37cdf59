"""What a decoder remembers between steps."""

import torch
from torch import Tensor

from nmt.model.attention import Cache


class State:
    """What a decoder remembers between steps; rows are hypotheses."""

    def __init__(
        self,
        source: Tensor,
        allowed: Tensor,
        layers: int,
        streams: int = 1,
        columns: dict[str, Tensor] | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.source = source  # [sentence x streams, source, dim], or of rows after a reorder
        self.allowed = allowed  # [sentence, 1, 1, source]
        self.length = 0  # tokens decoded so far
        self.own = [Cache() for _ in range(layers)]
        self.cross = [Cache() for _ in range(layers)]
        self.recurrent: dict[str, Tensor] = {}  # of encodings; rows first
        self.columns = columns or {}  # [rows, source | 1] each
        self.lengths = lengths  # [rows] desired length of the output, eos included
        self._streams = streams
        self._origin = torch.arange(len(allowed), device=source.device)  # [rows] first row of each

    @property
    def rows(self) -> int:
        """How many hypotheses there are."""
        return len(self._origin)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]: repeats, reorders or drops rows.

        Rows that merely swap with another hypothesis of the same sentence leave the source alone.
        """
        streams = self._streams_of(rows)
        for cache in self.own:
            cache.reorder(streams)
        self.recurrent = {name: t[rows] for name, t in self.recurrent.items()}
        origin = self._origin[rows]
        if origin.shape != self._origin.shape or not torch.equal(origin, self._origin):
            self.source, self.allowed = self.source[streams], self.allowed[rows]
            self.columns = {name: t[rows] for name, t in self.columns.items()}
            self.lengths = None if self.lengths is None else self.lengths[rows]
            for cache in self.cross:
                cache.reorder(streams)
        self._origin = origin

    def _streams_of(self, rows: Tensor) -> Tensor:
        """The same choice among rows of which each stands `streams` times, side by side."""
        if self._streams == 1:
            return rows
        each = torch.arange(self._streams, device=rows.device)
        return (rows[:, None] * self._streams + each).flatten()
