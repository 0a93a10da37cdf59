"""What is kept of the tokens seen so far, so that a decoder reads each of them once."""

from torch import Tensor

KEYS, VALUES = "keys", "values"


class Cache:
    """Keys and values [rows, heads, length, head_dim] of the tokens seen so far.

    And what encodings remember of each key: [rows, any, length, width]. Room is doubled when it
    runs out, so a step copies one position and not the whole past.
    """

    def __init__(self) -> None:
        self.length = 0  # keys; what is remembered of new ones comes first
        self._held: dict[str, Tensor] = {}  # [rows, heads, room, head_dim] each

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all."""
        all_keys, all_values = self._add(KEYS, k), self._add(VALUES, v)
        self.length += k.shape[2]
        return all_keys, all_values

    def all(self) -> tuple[Tensor, Tensor]:
        """What was stored; raises RuntimeError where nothing was."""
        if KEYS not in self._held:
            raise RuntimeError("the cache is empty")
        return self._held[KEYS][:, :, : self.length], self._held[VALUES][:, :, : self.length]

    def remember(self, name: str, new: Tensor) -> Tensor:
        """Add what an encoding computed of new keys [rows, any, new, width], and return all.

        The keys themselves are appended afterwards.
        """
        return self._add(f"encoding.{name}", new)

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]."""
        self._held = {name: self._taken(held, rows) for name, held in self._held.items()}

    def move(self, to: Tensor, source: Tensor, rows: int) -> None:
        """Row to[i] becomes old row source[i], in place; then only the first `rows` are kept.

        No row may be in both.
        """
        for name, held in self._held.items():
            if len(to):
                filled = held[:, :, : self.length]
                filled.index_copy_(0, to, filled.index_select(0, source))
            self._held[name] = held[:rows]

    @property
    def held(self) -> list[Tensor]:
        """All that is held, with the room that is not filled yet."""
        return list(self._held.values())

    def _add(self, name: str, new: Tensor) -> Tensor:
        end = self.length + new.shape[2]
        held = self._held[name] = self._room(self._held.get(name), new, end)
        held[:, :, self.length : end] = new
        return held[:, :, :end]

    def _taken(self, held: Tensor, rows: Tensor) -> Tensor:
        """Rows of what is held; the room beyond the length is not read."""
        taken = self._empty(held, len(rows), held.shape[2])
        taken[:, :, : self.length] = held[:, :, : self.length].index_select(0, rows)
        return taken

    def _room(self, old: Tensor | None, new: Tensor, end: int) -> Tensor:
        if old is not None and old.shape[2] >= end:
            return old
        grown = self._empty(new, len(new), max(16, 2 * end))
        if old is not None:
            grown[:, :, : self.length] = old[:, :, : self.length]
        return grown

    def _empty(self, like: Tensor, rows: int, room: int) -> Tensor:
        return like.new_empty(rows, like.shape[1], room, like.shape[3])
