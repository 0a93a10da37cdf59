"""Positions of tokens that are counted or scaled, for any encoding that reads them."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nmt.encodings.context import Context, Positions


@dataclass(frozen=True)
class Index(Positions):
    """The token's place in its sentence: start, start + step, start + 2 step, ..."""

    start: int = 0
    step: int = 1

    def __post_init__(self) -> None:
        if self.step == 0:
            raise ValueError("at.index.step=0: all tokens would have one position")

    @property
    def ascending(self) -> bool:
        """Not with a negative step."""
        return self.step >= 0

    @property
    def consecutive(self) -> bool:
        """With a step of 1."""
        return self.step == 1

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Multiply every index by `step` and shift it by `start`."""
        return index * self.step + self.start

    def position_range(self, length: int, training: bool) -> range:
        """From the first token's to the last one's, or back where `step` is negative."""
        first, last = sorted((self.start, self.start + (length - 1) * self.step))
        return range(first, last + 1)


START = Index()  # positions are counted from 0


@dataclass(frozen=True)
class Scaled(Positions):
    """Other positions times a factor (position interpolation, Chen et al. 2023), plus a shift."""

    inner: Positions
    factor: float
    shift: int = 0
    integer: ClassVar[bool] = False

    @property
    def columns(self) -> frozenset[str]:
        """Those of the positions inside."""
        return self.inner.columns

    @property
    def needs_lengths(self) -> bool:
        """As the positions inside."""
        return self.inner.needs_lengths

    @property
    def ascending(self) -> bool:
        """As the positions inside."""
        return self.inner.ascending

    def max_length(self, training: bool) -> int | None:
        """As the positions inside."""
        return self.inner.max_length(training)

    def position_range(self, length: int, training: bool) -> range | None:
        """That of the positions inside, shifted; None where they are scaled."""
        inner = self.inner.position_range(length, training)
        if inner is None or self.factor != 1:
            return None
        return range(inner.start + self.shift, inner.stop + self.shift)

    def max_distance(self, length: int, training: bool) -> int | None:
        """As of the positions inside, which a shift leaves alone; None where they are scaled."""
        return self.inner.max_distance(length, training) if self.factor == 1 else None

    def assign(self, index: Tensor, context: Context) -> Tensor:
        """Multiply the inner positions by the factor, and add the shift."""
        return self.inner.assign(index, context) * self.factor + self.shift


def check_ascending(positions: Positions, site: str) -> None:
    """Raise ValueError for encodings whose decoder has no distances to keys ahead of a query."""
    if site == "decoder" and not positions.ascending:
        raise ValueError(
            "positions that count down: they put a decoder's past ahead of it, where this encoding "
            "tells no distances; choose ascending ones, or where=encoder"
        )
