"""Which number a token gets: a choice of its own, usable under every encoding that takes it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from nmt.encodings.context import Context


@dataclass(frozen=True)
class Positions:
    """Turns token indices into positions. Equal objects share their work within one pass."""

    integer = True  # tables can be indexed with the result

    def assign(self, index: Tensor, context: "Context") -> Tensor:
        """Map indices [batch | 1, length], counted from 0, to positions of the same shape."""
        raise NotImplementedError


@dataclass(frozen=True)
class Index(Positions):
    """The token's place in its sentence, counted from `start`."""

    start: int = 0

    def assign(self, index: Tensor, context: "Context") -> Tensor:
        """Shift every index by `start`."""
        return index + self.start


POSITIONS: dict[str, type[Positions]] = {"index": Index}  # name in a config's `at:`
