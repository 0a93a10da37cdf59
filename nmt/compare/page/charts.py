"""The large charts: values by source length, and learning curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from nmt.compare.page.svg import (
    Chart,
    Label,
    Stroke,
    classes,
    grid,
    line,
    linear_scale,
    mark,
    positive,
)
from nmt.compare.page.text import fixed, share, tick_label
from nmt.compare.report import SOURCE, BucketScores, PlaceScores, Report

WIDTH, HEIGHT = 400.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 40.0, 10.0, 18.0, 46.0
BAND, LETTER = 58.0, 6.8  # least width of a bucket, and of a letter of its name
LABEL = 26.0  # least width between the numbers of two limits
SPREAD = 0.5  # share of a band over which the systems stand side by side
POINTS = 120  # of a curve; longer ones are thinned


class Point(NamedTuple):
    """A value with its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


class Series(NamedTuple):
    """The values of one system by bucket; None where there is none."""

    system: int
    label: str
    points: list[Point | None]


class Limit(NamedTuple):
    """The longest source, or target, in the training of some systems."""

    length: int
    systems: list[int]
    place: float | None  # on the axis of buckets


@dataclass(frozen=True)
class Bands:
    """The labels below a chart by source length."""

    rows: Sequence[BucketScores | PlaceScores]  # the buckets, or places in joined lines
    unit: str | None
    limits: list[Limit]
    side: str = SOURCE  # or REFERENCE


def by_length(
    name: str,
    bands: Bands,
    series: Sequence[Series],
    level: float | None = None,
    reference: Sequence[float | None] = (),
    percent: bool = False,
) -> Chart:
    """Values by bucket with intervals; hollow where pairs are few; trained limits as lines.

    level: a value to mark by a line, as 1 for length ratios. reference: values of the references,
    drawn as short bars. percent: values are shares of 1.
    """
    needed = max(BAND, 8 + LETTER * max(len(row.name) for row in bands.rows))
    width = max(WIDTH, LEFT + RIGHT + needed * len(bands.rows))
    right, bottom = width - RIGHT, HEIGHT - BOTTOM
    points = [point for curve in series for point in curve.points if point is not None]
    values = [v for point in points for v in point if v is not None]
    values += [v for v in [level, *reference] if v is not None]
    y = linear_scale(values, bottom, TOP, zero=percent)
    band = (right - LEFT) / len(bands.rows)
    strokes, labels = _limits(bands, band, right, bottom)
    levels, numbers = grid(y, LEFT, right, percent)
    strokes, labels = [*strokes, *levels], [*labels, *numbers, *_bucket_labels(bands, band, bottom)]
    if level is not None:
        strokes.append(Stroke(f"M{LEFT:g} {y(level):.1f}H{right:g}", "level"))
    for i, value in enumerate(reference):
        if value is not None:
            start = LEFT + band * (i + 0.12)
            strokes.append(Stroke(f"M{start:.1f} {y(value):.1f}h{band * 0.76:.1f}", "reference"))
    for n, curve in enumerate(series):
        offset = 0.5 + SPREAD * ((n + 0.5) / len(series) - 0.5)
        places = [
            (LEFT + band * (i + offset), point, row)
            for i, (point, row) in enumerate(zip(curve.points, bands.rows, strict=True))
            if point is not None
        ]
        for _, connected in groupby(places, lambda place: getattr(place[2], "parts", None)):
            strokes += line(curve.system, [(x, y(point.value)) for x, point, _ in connected])
        bars = "".join(
            f"M{x:.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            for x, point, _ in places
            if point.low is not None and point.high is not None
        )
        strokes += [Stroke(bars, f"i {classes(curve.system)}")] if bars else []
        strokes += [mark(curve.system, x, y(p.value), hollow=row.few) for x, p, row in places]
    strokes.append(Stroke(f"M{LEFT:g} {bottom:g}h{band * len(bands.rows):.1f}", "axis"))
    return Chart(name, _description(bands, series, percent), width, HEIGHT, strokes, labels)


def _limits(
    bands: Bands, band: float, right: float, bottom: float
) -> tuple[list[Stroke], list[Label]]:
    """A dashed line where sources get longer than any in training; a wash beyond all of them."""
    known = [(LEFT + band * m.place, m.length) for m in bands.limits if m.place is not None]
    strokes, labels = list[Stroke](), list[Label]()
    if known and len(known) == len(bands.limits):
        x = max(x for x, _ in known)
        strokes.append(Stroke(f"M{x:.1f} {TOP:g}H{right:g}V{bottom:g}H{x:.1f}z", "beyond"))
    written = -LABEL
    for x, length in known:
        strokes.append(Stroke(f"M{x:.1f} {TOP - 4:g}V{bottom:g}", "limit"))
        if x - written < LABEL:
            continue  # two numbers would overlap; the note below the charts has both
        written = x
        text = f"trained to {length}" if len(bands.limits) == 1 else str(length)
        side = "end" if x > right - 60 else "middle"
        labels.append(Label(text, round(x, 1), TOP - 7, side))
    return strokes, labels


def _bucket_labels(bands: Bands, band: float, bottom: float) -> list[Label]:
    """The names of the buckets, their pairs, and the unit."""
    labels = []
    for i, row in enumerate(bands.rows):
        x = round(LEFT + band * (i + 0.5), 1)
        labels.append(Label(row.name, x, bottom + 15, "middle"))
        labels.append(Label(f"n {row.pairs:,}", x, bottom + 27, "middle", "small"))
    if bands.unit:
        about = f"{bands.side} length in {bands.unit}"
        about = about if len(about) <= 70 else about[:69] + "…"
        x = LEFT + band * len(bands.rows) / 2
        labels.append(Label(about, x, bottom + 42, "middle", "small"))
    return labels


def _description(bands: Bands, series: Sequence[Series], percent: bool) -> str:
    """The values in words; the tables below the charts have all digits."""
    sentences = []
    for curve in series:
        values = [
            f"{row.name}: {share(point.value) if percent else fixed(point.value, 2)}"
            for row, point in zip(bands.rows, curve.points, strict=True)
            if point is not None
        ]
        sentences.append(f"{curve.label}: {', '.join(values) or 'nothing'}")
    return "; ".join(sentences)


class Curve(NamedTuple):
    """Values over updates or distances."""

    number: int  # of the system or layer, which decides on colour and dashes
    xs: Sequence[float]
    ys: Sequence[float]


def curve_chart(
    name: str, about: str, curves: Sequence[Curve], axis: str, percent: bool = False
) -> Chart:
    """Curves, with what the x-axis means; a logarithmic y-axis where the values need it.

    percent: values are shares of 1, from zero on.
    """
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM + 10
    x = linear_scale([v for curve in curves for v in curve.xs], LEFT, right, zero=True)
    values = [v for curve in curves for v in curve.ys]
    y = linear_scale(values, bottom, TOP, zero=True) if percent else positive(values, bottom, TOP)
    strokes, labels = grid(y, LEFT, right, percent)
    strokes.append(Stroke(f"M{LEFT:g} {bottom:g}H{right:g}", "axis"))
    labels += [Label(tick_label(v), round(x(v), 1), bottom + 15, "middle") for v in x.ticks(5)]
    labels.append(Label(axis, (LEFT + right) / 2, bottom + 31, "middle", "small"))
    for curve in curves:
        places = [
            (x(a), y(b))
            for a, b in zip(curve.xs, curve.ys, strict=True)
            if y.low <= b <= y.high  # not infinite, and above zero
        ]
        step = max(1, -(-len(places) // POINTS))
        strokes += line(curve.number, places[:-1:step] + places[-1:], "l thin")
    about += " Logarithmic axis." if y.log else ""
    return Chart(name, about, WIDTH, HEIGHT, strokes, labels)


def learning_charts(report: Report) -> list[Chart]:
    """Perplexities and learning rates over the updates, one line for each run."""
    curves = [(s, run.curve) for s, system in enumerate(report.systems) for run in system.runs]
    kinds = {
        "Dev perplexity": [Curve(s, c.dev_steps, c.dev) for s, c in curves],
        "Training perplexity": [Curve(s, c.steps, c.train) for s, c in curves],
        "Learning rate": [Curve(s, c.steps, c.rates) for s, c in curves],
    }
    charts = []
    for name, lines in kinds.items():
        if known := [line for line in lines if len(line.xs) > 1]:
            about = f"{len(known)} runs, one line each, over their updates."
            charts.append(curve_chart(name, about, known, "updates")._replace(caption=name))
    return charts
