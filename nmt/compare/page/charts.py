"""The charts: values by source length, learning curves, and where a head looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.compare.page.markup import Child, Markup, box, tag
from nmt.compare.page.numbers import fixed, share, short
from nmt.compare.page.svg import dash, fitted, grid, look, mark, path, picture, positive
from nmt.compare.report import BucketScores

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

    system: int  # None for the references' own values
    label: str
    points: list[Point | None]


class Limit(NamedTuple):
    """The longest source in the training of some systems."""

    length: int
    systems: list[int]
    place: float | None  # on the axis of buckets


@dataclass(frozen=True)
class Bands:
    """What is written below a chart by source length."""

    rows: list[BucketScores]  # the buckets
    unit: str | None
    limits: list[Limit]


def by_length(
    name: str,
    bands: Bands,
    series: Sequence[Series],
    level: float | None = None,
    reference: list[float | None] | None = None,
    percent: bool = False,
) -> Markup:
    """Values by bucket with intervals; hollow where pairs are few; trained limits as lines.

    level: a value to mark by a line, as 1 for length ratios. reference: values of the references,
    drawn as short bars. percent: values are shares of 1.
    """
    needed = max(BAND, 8 + LETTER * max(len(row.name) for row in bands.rows))
    width = max(WIDTH, LEFT + RIGHT + needed * len(bands.rows))
    right, bottom = width - RIGHT, HEIGHT - BOTTOM
    known = [p for s in series for p in s.points if p is not None]
    values = [v for p in known for v in p if v is not None]
    values += [v for v in [level, *(reference or [])] if v is not None]
    y = fitted(values, bottom, TOP, zero=percent)
    band = (right - LEFT) / len(bands.rows)
    parts: list[Child] = [*_limits(bands, band, right, bottom), grid(y, LEFT, right, percent)]
    if level is not None:
        parts.append(tag("path", d=f"M{LEFT:g} {y(level):.1f}H{right:g}", class_="level"))
    for i, value in enumerate(reference or []):
        if value is not None:
            start = LEFT + band * (i + 0.12)
            d = f"M{start:.1f} {y(value):.1f}h{band * 0.76:.1f}"
            parts.append(tag("path", d=d, class_="reference"))
    for n, one in enumerate(series):
        offset = 0.5 + SPREAD * ((n + 0.5) / len(series) - 0.5)
        xs = [LEFT + band * (i + offset) for i in range(len(bands.rows))]
        places = [
            (x, p, row.few) for x, p, row in zip(xs, one.points, bands.rows, strict=True) if p
        ]
        parts.append(
            path(
                [(x, y(p.value)) for x, p, _ in places],
                class_=f"l {look(one.system)}",
                stroke_dasharray=dash(one.system),
            )
        )
        bars = "".join(
            f"M{x:.1f} {y(p.low):.1f}V{y(p.high):.1f}"
            for x, p, _ in places
            if p.low is not None and p.high is not None
        )
        parts.append(tag("path", d=bars, class_=f"i {look(one.system)}") if bars else None)
        parts += [mark(one.system, x, y(p.value), hollow=few) for x, p, few in places]
    parts.append(_below(bands, band, bottom))
    chart = picture(name, _said(bands, series, percent), width, HEIGHT, parts)
    return chart if width == WIDTH else box(name, chart, kind="wide")


def _limits(bands: Bands, band: float, right: float, bottom: float) -> list[Child]:
    """A dashed line where sources get longer than any in training; a wash beyond the last."""
    places = [(limit.place, limit) for limit in bands.limits]
    known = [(LEFT + band * x, limit) for x, limit in places if x is not None]
    parts: list[Child] = []
    if known:
        x = max(x for x, _ in known)
        d = f"M{x:.1f} {TOP:g}H{right:g}V{bottom:g}H{x:.1f}z"
        parts.append(tag("path", d=d, class_="beyond"))
    written = -LABEL
    for x, limit in known:
        parts.append(tag("path", d=f"M{x:.1f} {TOP - 4:g}V{bottom:g}", class_="limit"))
        if x - written < LABEL:
            continue  # two numbers would overlap; the note below the charts has both
        written = x
        whose = f"trained to {limit.length}" if len(known) == 1 else str(limit.length)
        side = "end" if x > right - 60 else "middle"
        parts.append(tag("text", whose, x=round(x, 1), y=TOP - 7, text_anchor=side))
    return parts


def _below(bands: Bands, band: float, bottom: float) -> list[Child]:
    parts: list[Child] = [
        tag("path", d=f"M{LEFT:g} {bottom:g}h{band * len(bands.rows):.1f}", class_="axis")
    ]
    for i, row in enumerate(bands.rows):
        x = round(LEFT + band * (i + 0.5), 1)
        parts.append(tag("text", row.name, x=x, y=bottom + 15, text_anchor="middle"))
        n = f"n {row.pairs:,}"
        parts.append(tag("text", n, x=x, y=bottom + 27, text_anchor="middle", class_="small"))
    if bands.unit:
        about = f"source length in {bands.unit}"
        about = about if len(about) <= 70 else about[:69] + "…"
        x = LEFT + band * len(bands.rows) / 2
        parts.append(tag("text", about, x=x, y=bottom + 42, text_anchor="middle", class_="small"))
    return parts


def _said(bands: Bands, series: Sequence[Series], percent: bool) -> str:
    """The values in words; the tables below the charts have all digits."""
    said = []
    for one in series:
        values = [
            f"{row.name}: {share(p.value) if percent else fixed(p.value, 2)}"
            for row, p in zip(bands.rows, one.points, strict=True)
            if p is not None
        ]
        said.append(f"{one.label}: {', '.join(values) or 'nothing'}")
    return "; ".join(said)


class Line(NamedTuple):
    """One run's curve."""

    system: int
    xs: Sequence[float]
    ys: Sequence[float]


def over_steps(name: str, about: str, lines: Sequence[Line]) -> Markup:
    """Curves over updates; a logarithmic axis where the values need it."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM + 10
    x = fitted([v for line in lines for v in line.xs], LEFT, right, zero=True)
    y = positive([v for line in lines for v in line.ys], bottom, TOP)
    parts: list[Child] = [*grid(y, LEFT, right)]
    parts.append(tag("path", d=f"M{LEFT:g} {bottom:g}H{right:g}", class_="axis"))
    for value in x.ticks(5):
        at = round(x(value), 1)
        parts.append(tag("text", short(value), x=at, y=bottom + 15, text_anchor="middle"))
    middle = (LEFT + right) / 2
    parts.append(
        tag("text", "updates", x=middle, y=bottom + 31, text_anchor="middle", class_="small")
    )
    for line in lines:
        places = [
            (x(a), y(b))
            for a, b in zip(line.xs, line.ys, strict=True)
            if y.low <= b <= y.high  # not infinite, and above zero
        ]
        step = max(1, -(-len(places) // POINTS))
        thin = places[:-1:step] + places[-1:]
        style = {"class_": f"l thin {look(line.system)}", "stroke_dasharray": dash(line.system)}
        parts.append(path(thin, **style))
    if y.log:
        about += " Logarithmic axis."
    return picture(name, about, WIDTH, HEIGHT, parts)
