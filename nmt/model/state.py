"""The state of a decoder between steps."""

import torch
from torch import Tensor

from nmt.model.cache import Cache


class State:
    """The state of a decoder between steps; rows are hypotheses.

    Adjacent hypotheses of one sentence, as many for each sentence, are a group: keys and values of
    their source are kept once per group. With complex embeddings a row is a stream of a hypothesis,
    the streams of one are adjacent, and each is a group.
    """

    def __init__(
        self,
        memory: Tensor,
        allowed: Tensor,
        layers: int,
        streams: int = 1,
        columns: dict[str, Tensor] | None = None,
        lengths: Tensor | None = None,
    ) -> None:
        self.memory = memory  # [group, source, dim] encoder states
        self.allowed = allowed  # [group, 1, 1, source]
        self.columns = columns or {}  # [group, source | 1] each
        self.lengths = lengths  # [group] desired length of the output, eos included
        self.beams = 1  # hypotheses of a group
        self.length = 0  # tokens decoded so far
        self.self_caches = [Cache() for _ in range(layers)]  # of rows
        self.cross_caches = [Cache(fixed=True) for _ in range(layers)]  # of groups
        self.recurrent: dict[str, Tensor] = {}  # of encodings; [row, ...]
        self._streams = streams  # rows of a hypothesis

    def per_row(self, values: Tensor) -> Tensor:
        """Values of groups [group, ...], repeated for each row [row, ...]."""
        return values if self.beams == 1 else values.repeat_interleave(self.beams, 0)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]: repeats, reorders or drops rows.

        `rows` [group, beams] says that those of a line are of one group, and that groups keep their
        order and are not repeated; of `rows` [rows] nothing is known.
        """
        if self._streams > 1:
            streams = torch.arange(self._streams, device=rows.device)
            rows = (rows.flatten()[:, None] * self._streams + streams).flatten()
        flat = rows.flatten()
        groups, self.beams = self._groups(rows, flat // self.beams)
        if groups is not None:
            self.memory, self.allowed = self.memory[groups], self.allowed[groups]
            self.columns = {name: column[groups] for name, column in self.columns.items()}
            self.lengths = None if self.lengths is None else self.lengths[groups]
            for cache in self.cross_caches:
                cache.reorder(groups)
        for cache in self.self_caches:
            cache.reorder(flat)
        self.recurrent = {name: value[flat] for name, value in self.recurrent.items()}

    def _groups(self, rows: Tensor, old_groups: Tensor) -> tuple[Tensor | None, int]:
        """The old group of each new one (None: unchanged), and the new width.

        `old_groups` are those of the rows; to look at them would have to wait for a GPU.
        """
        if rows.dim() == 2:
            unchanged = len(rows) == len(self.allowed)
            return (None if unchanged else old_groups.view_as(rows)[:, 0]), rows.shape[1]
        if rows.device.type != "cpu":
            return old_groups, 1
        groups, counts = old_groups.unique_consecutive(return_counts=True)
        if len(widths := set(counts.tolist())) == 1:
            return groups, widths.pop()
        return old_groups, 1
