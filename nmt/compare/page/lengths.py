"""Scores, length ratios and signs of under-translation by source length, as charts."""

from collections.abc import Callable
from functools import partial

from nmt.compare.page import grids
from nmt.compare.page.charts import Bands, Limit, Point, Series, by_length
from nmt.compare.page.grids import Field
from nmt.compare.page.markup import Child, Markup, bdi, details, listed, nothing, section, tag
from nmt.compare.page.numbers import fixed, share
from nmt.compare.report import (
    UNATTENDED,
    BucketScores,
    Metric,
    Report,
    ScoredTest,
    SystemScores,
    UnderTranslation,
)

SIGNS = {  # of under-translation: heading, and what it is
    "repeated": ("Repeated 4-grams", "share of the 4-grams that stood earlier in their line"),
    "unattended": (
        "Hardly attended",
        f"share of source pieces with attention under {UNATTENDED} over the whole output",
    ),
    "dropped_half": ("Dropped second half", "share of joined pairs without their second half"),
}


def legend(report: Report, choose: bool = True) -> Markup:
    """Every system with its line and shape; the boxes take a system out of the charts around."""
    items = []
    for s in range(len(report.systems)):
        tick = tag("input", type="checkbox", checked=True, value=s) if choose else None
        items.append(tag("li", tag("label", tick, " ", grids.named(report, s))))
    return tag("ul", items, class_="legend")


def figure(caption: Child, chart: Markup) -> Markup:
    """A chart under its caption."""
    return tag("figure", tag("figcaption", caption), chart)


def _bands(report: Report, test: ScoredTest) -> Bands:
    limits = [
        Limit(length, systems, test.place_of(length))
        for length, systems in sorted(report.trained_limits.items())
    ]
    return Bands(test.buckets, test.unit, limits)


def _series(
    report: Report, rows: list[BucketScores], value: Callable[[SystemScores], Point | None]
) -> list[Series]:
    return [
        Series(s, system.label, [value(row.cells[s]) for row in rows])
        for s, system in enumerate(report.systems)
    ]


def render(report: Report) -> Markup:
    """Every test set that has buckets: charts, then all its numbers."""
    parts: list[Child] = [_lengths(report, test) for test in report.tests]
    if not parts:
        parts = [nothing("No test set.")]
    return section("lengths", "Score and length ratio by source length", parts)


def _lengths(report: Report, test: ScoredTest) -> Markup:
    heading = tag("h3", bdi(test.name))
    about: Child = tag("p", test.about, dir="auto")
    metrics = [metric.name for metric in test.metrics]
    systems = range(len(report.systems))
    table = grids.scores(report, test, f"{test.name}, all", test.rows, systems, metrics, False)
    numbers = details("All numbers of this test set", table, _ratios(report, test), class_="fold")
    if not test.buckets or test.unit is None:
        none = nothing("It has no source text, hence no lengths.")
        return tag("div", heading, about, none, numbers, class_="part")
    bands = _bands(report, test)
    charts = [
        figure(
            f"{metric.name}, {'higher' if metric.higher_is_better else 'lower'} is better",
            _scores(report, test, bands, metric),
        )
        for metric in test.metrics
    ]
    charts.append(
        figure(
            "Length ratio, hypotheses over references",
            by_length(
                f"Length ratio by source length, {test.name}",
                bands,
                _series(report, bands.rows, lambda c: None if c.ratio is None else Point(c.ratio)),
                level=1.0,
            ),
        )
    )
    return tag(
        "div",
        heading,
        about,
        tag("div", legend(report), tag("div", charts, class_="charts"), class_="switched"),
        tag("p", _marks(report, bands), class_="note"),
        numbers,
        class_="part",
    )


def _scores(report: Report, test: ScoredTest, bands: Bands, metric: Metric) -> Markup:
    def value(cell: SystemScores) -> Point | None:
        score = cell.scores.get(metric.name)
        return None if score is None else Point(score.mean, score.low, score.high)

    name = f"{metric.name} by source length with 95 % intervals, {test.name}"
    return by_length(name, bands, _series(report, bands.rows, value))


def _marks(report: Report, bands: Bands) -> list[Child]:
    """What lines and hollow shapes mean."""
    said: list[Child] = [
        "Bars: 95\u00a0% intervals. Length ratio: tokens of the hypotheses over those of the "
        "references, as BLEU counts them. "
    ]
    if any(row.few for row in bands.rows):
        said.append("Hollow: few pairs. ")
    shown = [limit for limit in bands.limits if limit.place is not None]
    if not shown:
        return [*said, "No source is longer than those in training, as far as these are known."]
    parts: list[Child] = [
        [f"{limit.length} (", *listed(bdi(report.systems[s].label) for s in limit.systems), ")"]
        if len(shown) > 1
        else str(limit.length)
        for limit in shown
    ]
    return [*said, "Dashed: the longest source in training, ", *listed(parts), "."]


def _ratios(report: Report, test: ScoredTest) -> Markup:
    rows = [
        [
            Field(grids.named(report, s)),
            *(Field(fixed(row.cells[s].ratio, 2), row.cells[s].ratio) for row in test.rows),
        ]
        for s in range(len(report.systems))
    ]
    heading = tag("h4", "Length ratio")
    headings = ["System", *(row.name for row in test.rows)]
    return tag("div", heading, grids.sortable(f"Length ratio, {test.name}", headings, rows))


def undertranslation(report: Report) -> Markup:
    """Signs of under-translation by bucket, for every test set that has any."""
    parts = [_undertranslation(report, test) for test in report.tests]
    known = [part for part in parts if part is not None]
    if not known:
        known = [nothing("Under-translation was not diagnosed.")]
    return section("undertranslation", "Signs of under-translation", known)


def _undertranslation(report: Report, test: ScoredTest) -> Markup | None:
    rows = test.buckets or test.rows
    bands = Bands(rows, test.unit, _bands(report, test).limits)
    charts: list[Child] = []
    tables: list[Child] = []
    absent: list[str] = []
    for sign, (title, about) in SIGNS.items():
        series = _series(report, rows, partial(_sign, sign=sign))
        if not any(point for one in series for point in one.points):
            absent.append(title.lower())
            continue
        reference = [_reference(row) for row in rows] if sign == "repeated" else None
        name = f"{title} by source length, {test.name}"
        chart = by_length(name, bands, series, reference=reference, percent=True)
        bars = "; grey bars: references" if reference and any(reference) else ""
        charts.append(figure(f"{title}: {about}{bars}", chart))
        tables += [tag("h4", title), _table(report, test, sign, reference)]
    if not charts:
        return None
    missing = f"Not measured here: {', '.join(absent)}." if absent else None
    return tag(
        "div",
        tag("h3", bdi(test.name)),
        tag("div", legend(report), tag("div", charts, class_="charts"), class_="switched"),
        tag("p", "Means over seeds. ", missing, class_="note"),
        details("The numbers", tables, class_="fold"),
        class_="part",
    )


def _value(diagnosis: UnderTranslation | None, sign: str) -> float | None:
    return None if diagnosis is None else getattr(diagnosis, sign)


def _sign(cell: SystemScores, sign: str) -> Point | None:
    value = _value(cell.signs, sign)
    return None if value is None else Point(value)


def _reference(row: BucketScores) -> float | None:
    """The references are the same for all systems: the first that has the value has it right."""
    values = [_value(cell.signs, "repeated_reference") for cell in row.cells]
    return next((value for value in values if value is not None), None)


def _table(
    report: Report, test: ScoredTest, sign: str, reference: list[float | None] | None
) -> Markup:
    rows: list[list[Field]] = []
    for s in range(len(report.systems)):
        values = [_value(row.cells[s].signs, sign) for row in test.rows]
        rows.append([Field(grids.named(report, s)), *(Field(share(v), v) for v in values)])
    if reference is not None:
        values = [_reference(row) for row in test.rows]
        rows.append([Field("references"), *(Field(share(v), v) for v in values)])
    headings = ["System", *(row.name for row in test.rows)]
    return grids.sortable(f"{SIGNS[sign][0]}, {test.name}", headings, rows)
