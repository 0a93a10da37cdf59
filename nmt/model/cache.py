"""What a decoder keeps between steps: keys and values of tokens, and the rest of its state."""

import torch
from torch import Tensor


class Cache:
    """Keys and values [rows, heads, length, head_dim] of the tokens seen so far.

    And values that encodings compute of each key: [rows, any, length, width]. A `fixed` cache gets
    all keys at once (cross-attention). In another the capacity is doubled when it runs out, so that
    a step copies one position and not all before it.
    """

    def __init__(self, fixed: bool = False) -> None:
        self.length = 0  # of keys; `remember` is called before new ones are appended
        self.fixed = fixed
        self._tensors: dict[str, Tensor] = {}  # [rows, heads, capacity, head_dim] each

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all."""
        all_keys, all_values = self._add("keys", k), self._add("values", v)
        self.length += k.shape[2]
        return all_keys, all_values

    def all(self) -> tuple[Tensor, Tensor]:
        """All keys and values; there must be some."""
        keys, values = self._tensors["keys"], self._tensors["values"]
        return keys[:, :, : self.length], values[:, :, : self.length]

    def remember(self, name: str, new: Tensor) -> Tensor:
        """Add values that an encoding computed of new keys [rows, any, new, width]; return all.

        The keys themselves are appended afterwards.
        """
        return self._add(f"encoding.{name}", new)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]."""
        self._tensors = {name: self._gather(t, rows) for name, t in self._tensors.items()}

    @property
    def tensors(self) -> list[Tensor]:
        """All that is stored, with the capacity that is not filled yet."""
        return list(self._tensors.values())

    def _add(self, name: str, new: Tensor) -> Tensor:
        if self.fixed:  # later steps have no new keys
            return self._tensors.setdefault(name, new)
        end = self.length + new.shape[2]
        tensor = self._tensors[name] = self._grow(self._tensors.get(name), new, end)
        tensor[:, :, self.length : end] = new
        return tensor[:, :, :end]

    def _gather(self, tensor: Tensor, rows: Tensor) -> Tensor:
        """The rows of a tensor with its capacity, but without what is beyond the length."""
        if self.fixed:
            return tensor.index_select(0, rows)
        gathered = _empty(tensor, len(rows), tensor.shape[2])
        old, new = tensor[:, :, : self.length], gathered[:, :, : self.length]
        if tensor.requires_grad:  # with out= there is no gradient
            new.copy_(old.index_select(0, rows))
        else:  # one copy instead of two
            torch.index_select(old, 0, rows, out=new)
        return gathered

    def _grow(self, old: Tensor | None, new: Tensor, end: int) -> Tensor:
        """The old tensor if its capacity reaches to `end`, else a copy with twice as much."""
        if old is not None and old.shape[2] >= end:
            return old
        larger = _empty(new, len(new), max(16, 2 * end))
        if old is not None:
            larger[:, :, : self.length] = old[:, :, : self.length]
        return larger


def _empty(like: Tensor, rows: int, capacity: int) -> Tensor:
    return like.new_empty(rows, like.shape[1], capacity, like.shape[3])


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
        """Copy rows: `rows` [sentences, beams] has, for each new row, the number of the old one.

        A row stays with its sentence, and sentences keep their order; some may be left out.
        """
        if self._streams > 1:  # each row is a group of its own
            streams = torch.arange(self._streams, device=rows.device)
            rows = (rows.flatten()[:, None] * self._streams + streams).view(-1, 1)
        flat, groups = rows.flatten(), rows[:, 0] // self.beams
        regrouped = self._streams > 1 or len(rows) < len(self.allowed)
        self.beams = rows.shape[1]
        if regrouped:
            self.memory, self.allowed = self.memory[groups], self.allowed[groups]
            self.columns = {name: column[groups] for name, column in self.columns.items()}
            self.lengths = None if self.lengths is None else self.lengths[groups]
            for cache in self.cross_caches:
                cache.reorder(groups)
        for cache in self.self_caches:
            cache.reorder(flat)
        self.recurrent = {name: value[flat] for name, value in self.recurrent.items()}
