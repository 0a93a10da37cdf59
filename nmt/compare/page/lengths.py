"""Scores, length ratios and signs of under-translation by length, as charts."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isfinite
from typing import NamedTuple

from nmt.compare.notation import OF_PARTS, SIGNS, of_part, reference_sign, sign
from nmt.compare.page.charts import Bands, Limit, Point, Series, by_length
from nmt.compare.page.svg import Chart
from nmt.compare.report import (
    UNATTENDED,
    BucketScores,
    PartShares,
    PlaceScores,
    Report,
    ScoredTest,
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
    references: list[float | None] | None = None  # the references' own, by row


def bands_of(report: Report, test: ScoredTest) -> Bands:
    """The axis of a test's buckets, with the limits of training."""
    limits = [
        Limit(length, systems, test.axis_position(length))
        for length, systems in sorted(report.trained_limits(test).items())
    ]
    return Bands(_rows(test), test.unit, limits, test.side)


def _rows(test: ScoredTest) -> list[BucketScores]:
    return test.buckets or test.rows


def score_charts(report: Report, test: ScoredTest) -> list[Chart]:
    """A chart for each metric, one of the length ratio, and of perplexity where it is known."""
    bands, rows = bands_of(report, test), _rows(test)
    charts = []
    for metric in test.metrics:
        better = "higher" if metric.higher_is_better else "lower"
        name = f"{metric.name} by {test.side} length with 95 % intervals, {test.name}"
        point = partial(_score_point, metric.name)
        chart = by_length(name, bands, _series(report, rows, point))
        charts.append(chart._replace(caption=f"{metric.name}, {better} is better"))
    ratios = _series(report, rows, lambda cell: _point(cell.ratio))
    chart = by_length(f"Length ratio by {test.side} length, {test.name}", bands, ratios, level=1.0)
    charts.append(chart._replace(caption="Length ratio, hypotheses over references"))
    perplexities = _series(report, rows, lambda cell: _point(cell.perplexity))
    if any(point for line in perplexities for point in line.points):
        chart = by_length(f"Perplexity by {test.side} length, {test.name}", bands, perplexities)
        charts.append(chart._replace(caption="Perplexity of the references, lower is better"))
    return charts


def _score_point(metric: str, cell: SystemScores) -> Point | None:
    score = cell.scores.get(metric)
    return None if score is None else Point(score.mean, score.low, score.high)


def _sign_point(name: str, cell: SystemScores) -> Point | None:
    return _point(sign(cell, name))


def _point(value: float | None) -> Point | None:
    return None if value is None or not isfinite(value) else Point(value)


def _series(
    report: Report,
    rows: Sequence[BucketScores],
    point: Callable[[SystemScores], Point | None],
) -> list[Series]:
    return [
        Series(s, system.label, [point(row.cells[s]) for row in rows])
        for s, system in enumerate(report.systems)
    ]


def signs_of(report: Report, test: ScoredTest) -> list[Sign]:
    """The signs of under-translation that are known of any system."""
    signs = []
    bands, rows = bands_of(report, test), _rows(test)
    for name, words in SIGNS.items():
        title = words.capitalize()
        series = _series(report, rows, partial(_sign_point, name))
        if not any(point for line in series for point in line.points):
            continue
        compared = name == "repeated"
        bars = list(map(reference_sign, rows)) if compared else []
        chart = by_length(
            f"{title} by {test.side} length, {test.name}",
            bands,
            series,
            reference=bars,
            percent=True,
        )
        caption = f"{title}: {ABOUT[name]}{'; grey bars: references' if any(bars) else ''}"
        values = [[sign(row.cells[s], name) for row in test.rows] for s in range(len(series))]
        references = list(map(reference_sign, test.rows)) if compared else None
        signs.append(Sign(title, chart._replace(caption=caption), test.rows, values, references))
    return [*signs, *_signs_by_place(report, test)]


def _signs_by_place(report: Report, test: ScoredTest) -> Iterator[Sign]:
    """What became of the parts of joined lines, by place; a chart of what arrived."""
    for name, words in OF_PARTS.items() if test.places else ():
        title, chart = f"Parts: {words}", None
        if name == "arrived":
            series = [
                Series(s, system.label, [_arrived_point(row.cells[s]) for row in test.places])
                for s, system in enumerate(report.systems)
            ]
            bands = Bands(test.places, None, [])
            chart = by_length(f"{title}, {test.name}", bands, series, percent=True)
            chart = chart._replace(caption=f"{title}, by place and number of parts")
        systems = range(len(report.systems))
        values = [[of_part(row.cells[s], name) for row in test.places] for s in systems]
        yield Sign(title, chart, test.places, values)


def _arrived_point(cell: PartShares) -> Point | None:
    share = cell.arrived
    return None if share is None else Point(share.mean, share.low, share.high)
