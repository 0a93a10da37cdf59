"""Small charts of how far the heads of a layer attend; there may be hundreds, so each is light."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from nmt.compare.page.svg import Chart, Label, Stroke, classes, dash
from nmt.compare.page.text import fixed, short
from nmt.compare.report import REACH, AttentionProfile

WIDTH, HEIGHT, EDGE, FLOOR, CEILING = 200, 120, 10, 100, 8
SINGLE, BINS = 8, 8  # distances drawn one by one; bins a side of those further away

Points = list[tuple[float, float]]  # distance, share of attention


class HeadCurve(NamedTuple):
    """How far a head attends."""

    head: int  # from 0
    points: Points
    ends: Points  # what stands for all distances from REACH on


def curves_of(profiles: Sequence[AttentionProfile], heads: bool) -> list[HeadCurve]:
    """A curve for each head of a layer, or the mean of them all."""
    if heads:
        return [HeadCurve(p.head - 1, *pooled(p.distances, p.weights)) for p in profiles]
    by_distance = zip(*(p.weights for p in profiles), strict=True)
    means = [sum(weights) / len(profiles) for weights in by_distance]
    return [HeadCurve(0, *pooled(profiles[0].distances, means))]


def pooled(distances: Sequence[int], weights: Sequence[float]) -> tuple[Points, Points]:
    """Points of a curve, the far ones as means of bins, and the ends that stand for all beyond.

    The mean of a bin keeps the height of the curve; its sum would make far attention look large.
    """
    pairs = list(zip(distances, weights, strict=True))
    inner = [(d, w) for d, w in pairs if abs(d) < REACH]
    far = max((abs(d) for d, _ in inner), default=0)
    width = max(1, -(-(far - SINGLE) // BINS))

    def bin_of(pair: tuple[int, float]) -> int:
        d = pair[0]
        if abs(d) <= SINGLE:
            return d
        away = SINGLE + 1 + (abs(d) - SINGLE - 1) // width
        return away if d > 0 else -away

    points: Points = []
    for _, group in groupby(inner, key=bin_of):
        part = list(group)
        n = len(part)
        points.append((sum(d for d, _ in part) / n, sum(w for _, w in part) / n))
    return points, [(float(d), w) for d, w in pairs if abs(d) >= REACH]


def straight(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Points without those inside a level stretch, which the line does not need."""
    return [
        point
        for i, point in enumerate(points)
        if not (0 < i < len(points) - 1 and points[i - 1][1] == point[1] == points[i + 1][1])
    ]


def draw(
    name: str, profiles: Sequence[AttentionProfile], curves: Sequence[HeadCurve], top: float
) -> Chart:
    """The curves of a layer up to the share `top`; whole numbers as places."""
    low, high = profiles[0].distances[0], profiles[0].distances[-1]
    scale = (WIDTH - 2 * EDGE) / ((high - low) or 1)

    def x(distance: float) -> int:
        return round(EDGE + (distance - low) * scale)

    def y(weight: float) -> int:
        return round(FLOOR - (FLOOR - CEILING) * weight / top)

    strokes = [Stroke(f"M{EDGE} {FLOOR}H{WIDTH - EDGE}", "axis")]
    if low <= 0 <= high:
        strokes.append(Stroke(f"M{x(0)} {CEILING}V{FLOOR}", "grid"))
    labels = []
    for d in sorted({low, high} | ({0} if low < 0 < high else set())):
        side = "middle" if low < d < high else "end" if d == high > low else "start"
        beyond = "" if abs(d) < REACH else "\u2265" if d > 0 else "\u2264"
        labels.append(Label(beyond + short(d), x(d), FLOOR + 14, side, "small"))
    labels.append(Label(f"layer {profiles[0].layer}", EDGE, CEILING + 2, kind="small"))
    height = f"up to {100 * top:.0f}%"
    labels.append(Label(height, WIDTH - EDGE, CEILING + 2, "end", "small"))
    for curve in curves:
        places = straight([(x(d), y(w)) for d, w in curve.points])
        line = "M" + " ".join(f"{a} {b}" for a, b in places) if places else ""
        ends = "".join(f"M{x(d)} {y(w)}h{6 if d < 0 else -6}" for d, w in curve.ends)
        strokes.append(Stroke(line + ends, f"p {classes(curve.head)}", dash(curve.head)))
    means = ", ".join(f"head {p.head}: {fixed(p.distance)}" for p in profiles)
    return Chart(name, f"Mean distances: {means}.", WIDTH, HEIGHT, strokes, labels)
