"""Scores, length ratios and signs of under-translation by length, as charts."""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from operator import attrgetter
from typing import Any, NamedTuple

from nmt.compare.notation import OF_PARTS, SIGNS, of_part, reference_sign, sign
from nmt.compare.page.charts import Bands, Limit, Point, Series, by_length
from nmt.compare.page.svg import Chart
from nmt.compare.report import (
    UNATTENDED,
    BucketScores,
    PlaceScores,
    Report,
    Score,
    ScoredTest,
    Share,
    SystemScores,
)

ABOUT = {  # the signs of under-translation
    "repeated": "share of the 4-grams that stood earlier in their line",
    "unattended": f"share of source pieces with attention under {UNATTENDED} over the whole output",
    "dropped_half": "share of joined pairs without their second half",
}


class Sign(NamedTuple):
    """A sign of under-translation on one test set."""

    title: str
    chart: Chart | None
    rows: Sequence[BucketScores | PlaceScores]
    values: list[list[float | None]]  # system, row
    references: Sequence[float | None] = ()  # the references' own, by row; none of other signs


def bands_of(report: Report, test: ScoredTest) -> Bands:
    """The axis of a test's buckets, with the limits of training."""
    limits = [
        Limit(length, systems, test.axis_position(length))
        for length, systems in sorted(report.trained_limits(test).items())
    ]
    return Bands(test.buckets or test.rows, test.unit, limits, test.side)


def score_charts(report: Report, test: ScoredTest) -> list[Chart]:
    """A chart for each metric, one of the length ratio, and of perplexity where it is known."""
    bands, by = bands_of(report, test), f"by {test.side} length"
    charts = []
    for metric in test.metrics:
        name = f"{metric.name} {by} with 95 % intervals, {test.name}"
        caption = f"{metric.name}, {'higher' if metric.higher_is_better else 'lower'} is better"
        charts.append(_chart(report, bands, name, caption, partial(_score, metric.name)))
    name, caption = f"Length ratio {by}, {test.name}", "Length ratio, hypotheses over references"
    charts.append(_chart(report, bands, name, caption, attrgetter("ratio"), level=1.0))
    name, caption = f"Perplexity {by}, {test.name}", "Perplexity of the references, lower is better"
    charts.append(_chart(report, bands, name, caption, attrgetter("perplexity")))
    return list(filter(None, charts))


def _chart(
    report: Report,
    bands: Bands,
    name: str,
    caption: str,
    value: Callable[[Any], Score | Share | float | None],
    **drawing: Any,
) -> Chart | None:
    """A chart of the values of all cells; None where none has one that can be drawn."""
    series = [
        Series(s, system.label, [_point(value(row.cells[s])) for row in bands.rows])
        for s, system in enumerate(report.systems)
    ]
    if not any(point for line in series for point in line.points):
        return None
    return by_length(name, bands, series, **drawing)._replace(caption=caption)


def _score(metric: str, cell: SystemScores) -> Score | None:
    return cell.scores.get(metric)


def _point(value: Score | Share | float | None) -> Point | None:
    """A value with its interval, if it has one; None for what cannot be drawn."""
    if isinstance(value, Score | Share):
        return Point(value.mean, value.low, value.high)
    return None if value is None or not isfinite(value) else Point(value)


def signs_of(report: Report, test: ScoredTest) -> list[Sign]:
    """The signs of under-translation that are known of any system."""
    signs, systems = [], range(len(report.systems))
    bands = bands_of(report, test)
    for name, words in SIGNS.items():
        references = list(map(reference_sign, test.rows)) if name == "repeated" else []
        bars, title = references[: len(bands.rows)], words.capitalize()
        caption = f"{title}: {ABOUT[name]}{'; grey bars: references' if any(bars) else ''}"
        named, of_cell = f"{title} by {test.side} length, {test.name}", partial(sign, name=name)
        chart = _chart(report, bands, named, caption, of_cell, reference=bars, percent=True)
        if chart:
            values = [[of_cell(row.cells[s]) for row in test.rows] for s in systems]
            signs.append(Sign(title, chart, test.rows, values, references))
    bands = Bands(test.places, None, [])
    for name, words in OF_PARTS.items() if test.places else ():
        title, chart = f"Parts: {words}", None
        if name == "arrived":
            caption = f"{title}, by place and number of parts"
            named = f"{title}, {test.name}"
            chart = _chart(report, bands, named, caption, attrgetter("arrived"), percent=True)
        values = [[of_part(row.cells[s], name) for row in test.places] for s in systems]
        signs.append(Sign(title, chart, test.places, values))
    return signs
