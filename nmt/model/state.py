"""The state of a decoder between steps."""

import torch
from torch import Tensor

from nmt.model.cache import Cache


class State:
    """The state of a decoder between steps; rows are hypotheses.

    Hypotheses of one sentence that stand side by side, as many for each, are a group: they attend
    to its source together, whose keys and values are kept once for all of them.
    """

    def __init__(
        self,
        source: Tensor,
        allowed: Tensor,
        layers: int,
        streams: int = 1,
        columns: dict[str, Tensor] | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.source = source  # [group x streams, source, dim]
        self.allowed = allowed  # [group, 1, 1, source]
        self.columns = columns or {}  # [group, source | 1] each
        self.lengths = lengths  # [group] desired length of the output, eos included
        self.width = 1  # hypotheses of a group
        self.length = 0  # tokens decoded so far
        self.own = [Cache() for _ in range(layers)]  # of rows
        self.cross = [Cache(fixed=True) for _ in range(layers)]  # of groups
        self.recurrent: dict[str, Tensor] = {}  # of encodings; [row, ...]
        self._streams = streams

    @property
    def rows(self) -> int:
        """How many hypotheses there are."""
        return len(self.allowed) * self.width

    def per_row(self, of_groups: Tensor) -> Tensor:
        """Values of groups [group, ...], repeated for each row [row, ...]."""
        return of_groups if self.width == 1 else of_groups.repeat_interleave(self.width, 0)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]: repeats, reorders or drops rows.

        `rows` [group, width] says that those of a line are of one group, and that groups keep their
        order and are not repeated; of `rows` [rows] nothing is known.
        """
        flat = rows.flatten()
        groups, self.width = self._groups(rows, flat // self.width)
        if groups is not None:
            streams = self._streams_of(groups)
            self.source, self.allowed = self.source[streams], self.allowed[groups]
            self.columns = {name: column[groups] for name, column in self.columns.items()}
            self.lengths = None if self.lengths is None else self.lengths[groups]
            for cache in self.cross:
                cache.reorder(streams)
        streams = self._streams_of(flat)
        for cache in self.own:
            cache.reorder(streams)
        self.recurrent = {name: value[flat] for name, value in self.recurrent.items()}

    def _groups(self, rows: Tensor, of_rows: Tensor) -> tuple[Tensor | None, int]:
        """The old group of each new one (None: all stay as they are), and their new width.

        `of_rows` are the old groups of the rows. A GPU would have to be waited for to look at them.
        """
        if self._streams > 1:
            return of_rows, 1
        if rows.dim() == 2:
            stay = len(rows) == len(self.allowed)
            return (None if stay else of_rows.view_as(rows)[:, 0]), rows.shape[1]
        if rows.device.type != "cpu":
            return of_rows, 1
        groups, counts = of_rows.unique_consecutive(return_counts=True)
        if len(widths := set(counts.tolist())) == 1:
            return groups, widths.pop()
        return of_rows, 1

    def _streams_of(self, rows: Tensor) -> Tensor:
        """The same choice among rows of which each stands `streams` times, side by side."""
        if self._streams == 1:
            return rows
        streams = torch.arange(self._streams, device=rows.device)
        return (rows[:, None] * self._streams + streams).flatten()
