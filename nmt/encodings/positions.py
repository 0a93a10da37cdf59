"""Which number a token gets: a choice of its own, usable under every encoding that takes it."""

from dataclasses import dataclass

from torch import Tensor

from nmt.encodings.context import Context, Positions


@dataclass(frozen=True)
class Index(Positions):
    """The token's place in its sentence, counted from `start`."""

    start: int = 0

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Shift every index by `start`."""
        return index + self.start


POSITIONS: dict[str, type[Positions]] = {"index": Index}  # name in a config's `at:`
