"""The parts of a chart: scales, ticks, marks, a frame. Colours and type sizes are in page.css.

Charts are drawn small, about as wide as a phone, and grow with the page: their letters can be read
at either size.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.compare.page.text import tick_label

COLOURS = 7  # as many as page.css has; then they begin again with other dashes
DASHES = ("", "6 3", "2 2.5", "8 3 2 3")
# One shape per colour, each within 6 around its place, so that colour is never the only sign.
SHAPES = (
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",  # circle
    "m-3-3h6v6h-6z",  # square
    "m0-3.9l3.9 3.9-3.9 3.9-3.9-3.9z",  # diamond
    "m0-3.9l3.9 7.8h-7.8z",  # triangle
    "m0 3.9l3.9-7.8h-7.8z",  # triangle upside down
    "m-3.9 0h7.8m-3.9-3.9v7.8",  # plus
    "m-3-3l6 6m0-6l-6 6",  # cross
)
LOG_FROM = 10  # a range of more than this ratio gets a logarithmic axis


class Stroke(NamedTuple):
    """A path of a chart."""

    d: str
    kind: str  # its classes
    dash: str | None = None


class Label(NamedTuple):
    """A piece of text in a chart."""

    text: str
    x: float
    y: float
    anchor: str = "start"
    kind: str | None = None


class Chart(NamedTuple):
    """A picture with a name and a description for those who cannot see it."""

    name: str
    about: str
    width: float
    height: float
    strokes: list[Stroke]
    labels: list[Label]
    caption: str = ""


def classes(i: int) -> str:
    """The classes of system (or head) number i: its own, to switch it off, and its colour."""
    return f"s{i} c{i % COLOURS}"


def dash(i: int) -> str | None:
    """The dashes of system number i; the first of each round of colours is drawn through."""
    return DASHES[(i // COLOURS + i % COLOURS) % len(DASHES)] or None


def mark(i: int, x: float, y: float, hollow: bool = False) -> Stroke:
    """The shape of system number i."""
    d = f"M{x:.1f} {y:.1f}{SHAPES[i % COLOURS]}"
    return Stroke(d, f"m {classes(i)}{' hollow' if hollow else ''}")


def line(i: int, points: Sequence[tuple[float, float]], kind: str = "l") -> list[Stroke]:
    """The line of system number i through points; nothing for fewer than two."""
    if len(points) < 2:
        return []
    places = " ".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return [Stroke(f"M{places}", f"{kind} {classes(i)}", dash(i))]


@dataclass(frozen=True)
class Scale:
    """From values to places on the paper."""

    low: float
    high: float
    start: float  # where `low` is drawn
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value is drawn."""
        at, low, high = (math.log(v) if self.log else v for v in (value, self.low, self.high))
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the scale, at most so many."""
        return _log_ticks(self, most) if self.log else _ticks(self.low, self.high, most)


def _ticks(low: float, high: float, most: int) -> list[float]:
    if high <= low:
        return [low]
    raw = (high - low) / most
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def _log_ticks(scale: Scale, most: int) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        values = [d * 10.0**e for e in range(first, last + 1) for d in digits]
        inside = [v for v in values if scale.low <= v * 1.0001 and v <= scale.high * 1.0001]
        if len(inside) <= most:
            return inside
    return inside[:: math.ceil(len(inside) / most)]


def linear_scale(values: Iterable[float], start: float, end: float, zero: bool = False) -> Scale:
    """A linear scale that shows all values with a little room; from zero where asked or near."""
    known = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero or 0 <= low < 0.4 * high:
        low = min(0.0, low)
    largest = max(abs(low), abs(high))
    same = high - low <= 1e-6 * largest  # or so nearly that no tick could tell
    room = 0.06 * ((largest or 1.0) if same else high - low)
    return Scale(low - (room if low else 0), high + room, start, end)


def positive(values: Iterable[float], start: float, end: float) -> Scale:
    """A scale for positive values: logarithmic where their range is wide."""
    known = [v for v in values if math.isfinite(v) and v > 0] or [1.0]
    low, high = min(known), max(known)
    if high / low <= LOG_FROM:
        return linear_scale(known, start, end)
    return Scale(low * 0.9, high * 1.1, start, end, log=True)


def grid(
    scale: Scale, left: float, right: float, percent: bool = False
) -> tuple[list[Stroke], list[Label]]:
    """Level lines with their values to the left."""
    strokes, labels = [], []
    for value in scale.ticks():
        y = round(scale(value), 1)
        text = f"{tick_label(round(100 * value, 6))}%" if percent else tick_label(value)
        strokes.append(Stroke(f"M{left:g} {y:g}H{right:g}", "grid"))
        labels.append(Label(text, left - 5, round(y + 3.5, 1), "end"))
    return strokes, labels
