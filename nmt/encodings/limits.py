"""How long a sequence may be, from the positions that it may get and those that a table holds."""

from dataclasses import dataclass

from nmt.encodings.context import Positions

ENDLESS = 2**31  # tokens; a limit beyond is none


@dataclass(frozen=True)
class Room:
    """Positions, and how many of them an encoding can hold."""

    positions: Positions
    holds: int | None  # positions 0 .. holds - 1; None: any
    spans: int | None  # the greatest distance; None: any
    sized_by: str  # the encoding's option that decides about it

    def longest(self, training: bool) -> int | None:
        """The longest sequence that has room; None: any, as far as known without the text."""
        given = self.positions.limit_in(training)
        most = ENDLESS if given is None else given
        if self._fits(most, training):
            return given
        good, bad = 0, most  # a longer sequence reaches no less far
        while bad - good > 1:
            middle = (good + bad) // 2
            if self._fits(middle, training):
                good = middle
            else:
                bad = middle
        return good

    def shortage(self, length: int) -> str | None:
        """Why sequences of `length` tokens have no room, and what would give it; None: they do."""
        for training in (True, False):
            limit = self.longest(training)
            if limit is not None and limit < length:
                when = "training" if training else "evaluation"
                return (
                    f"{self._what(length, training)} in {when}; give {self._fix(length, training)}"
                )
        return None

    def _fits(self, length: int, training: bool) -> bool:
        bounds, apart = self._reach(length, training)
        held = bounds is None or self.holds is None or 0 <= bounds[0] <= bounds[1] < self.holds
        return held and (apart is None or self.spans is None or apart <= self.spans)

    def _reach(self, length: int, training: bool) -> tuple[tuple[int, int] | None, int | None]:
        """The outermost positions, and the greatest distance, where they are limited at all."""
        bounds = None if self.holds is None else self.positions.bounds(length, training)
        return bounds, None if self.spans is None else self.positions.apart(length, training)

    def _what(self, length: int, training: bool) -> str:
        tokens = "the first token" if length == 1 else f"{length} tokens"
        bounds, apart = self._reach(length, training)
        if bounds is not None and bounds[0] < 0:
            return f"{tokens} may get position {bounds[0]}, below 0"
        if bounds is not None and self.holds is not None and bounds[1] >= self.holds:
            return f"{tokens} may get position {bounds[1]}, but it holds 0 to {self.holds - 1}"
        if apart is not None and self.spans is not None and apart > self.spans:
            tokens = "two tokens" if length == 1 else tokens
            return f"{tokens} may be {apart} apart, but it holds distances to {self.spans}"
        return f"there are no positions for {tokens}"

    def _fix(self, length: int, training: bool) -> str:
        """Options that would give room."""
        bounds, apart = self._reach(length, training)
        options: list[str | None] = []
        if bounds is not None and self.holds is not None and bounds[1] >= self.holds:
            options = [
                f"{self.sized_by}={bounds[1] + 1}",
                self.positions.nearer(bounds[1] - self.holds + 1, training),
            ]
        elif apart is not None and self.spans is not None and apart > self.spans:
            options = [
                f"{self.sized_by}={apart + 1}",
                self.positions.nearer(apart - self.spans, training),
            ]
        return " or ".join(o for o in options if o) or "other positions by at="
