"""Keys and values of the tokens seen so far, so that a decoder reads each of them once."""

from torch import Tensor


class Cache:
    """Keys and values [rows, heads, length, head_dim] of the tokens seen so far.

    Room is doubled when it runs out, so a step copies one position and not the whole past.
    """

    def __init__(self) -> None:
        self.length = 0
        self._k: Tensor | None = None  # [rows, heads, room, head_dim]
        self._v: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions and return all."""
        end = self.length + k.shape[2]
        self._k, self._v = self._room(self._k, k, end), self._room(self._v, v, end)
        self._k[:, :, self.length : end] = k
        self._v[:, :, self.length : end] = v
        self.length = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def all(self) -> tuple[Tensor, Tensor]:
        """What was stored; raises RuntimeError where nothing was."""
        if self._k is None or self._v is None:
            raise RuntimeError("the cache is empty")
        return self._k[:, :, : self.length], self._v[:, :, : self.length]

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes old row rows[i]."""
        self._k, self._v = self._taken(self._k, rows), self._taken(self._v, rows)

    def move(self, to: Tensor, source: Tensor, rows: int) -> None:
        """Row to[i] becomes old row source[i], in place; then only the first `rows` are kept.

        No row may be in both.
        """
        for held in (self._k, self._v):
            if held is not None and len(to):
                filled = held[:, :, : self.length]
                filled.index_copy_(0, to, filled.index_select(0, source))
        self._k = None if self._k is None else self._k[:rows]
        self._v = None if self._v is None else self._v[:rows]

    def _taken(self, held: Tensor | None, rows: Tensor) -> Tensor | None:
        """Rows of what is held; the room beyond the length is not read."""
        if held is None:
            return None
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
