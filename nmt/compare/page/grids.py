"""Tables: a sortable one for plain rows, and the one of scores by bucket."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt.compare.page.markup import Child, Markup, bdi, box, details, tag
from nmt.compare.page.numbers import (
    BEYOND,
    EMPTY,
    STAR,
    chance,
    fixed,
    signed,
    significant,
    spread,
)
from nmt.compare.page.svg import swatch
from nmt.compare.report import ALL, SIGNIFICANT, BucketScores, Report, Score, ScoredTest


class Field(NamedTuple):
    """A cell: what is shown, and what it is sorted by (its words where that is None)."""

    shown: Child
    key: float | None = None


def sortable(label: str, headings: Sequence[str], rows: Sequence[Sequence[Field]]) -> Markup:
    """A table whose columns sort by a button in their heading; the first column names the row."""
    head = tag("tr", [tag("th", h, scope="col", data_c=c) for c, h in enumerate(headings)])
    body = []
    for row in rows:
        name = tag("th", row[0].shown, scope="row", data_v=row[0].key)
        cells = [tag("td", field.shown, data_v=field.key) for field in row[1:]]
        body.append(tag("tr", name, cells))
    table = tag(
        "table", tag("thead", head), tag("tbody", body), class_="sortable", aria_label=label
    )
    return box(label, table)


def named(report: Report, system: int) -> Markup:
    """A system's label behind its line and shape."""
    label = bdi(report.systems[system].label)
    return tag("span", swatch(system), " ", label, class_="named")


def scores(
    report: Report,
    test: ScoredTest,
    label: str,
    rows: Sequence[BucketScores],
    systems: Sequence[int],
    metrics: Sequence[str],
    published: bool,
) -> Markup:
    """Systems down, buckets across, one column for each metric, as the paper has its tables."""
    several = len(metrics) > 1
    columns = [(row, metric) for row in rows for metric in metrics]
    first: list[Child] = [
        tag("th", "System", scope="col", data_c=0, rowspan=2 if several else None)
    ]
    second: list[Child] = []
    for n, row in enumerate(rows):
        c = 1 + n * len(metrics)
        if several:
            width = len(metrics)
            first.append(tag("th", _heading(row), class_="group", scope="colgroup", colspan=width))
            for k, metric in enumerate(metrics):
                edge = "edge" if k == 0 else None
                second.append(tag("th", metric, scope="col", data_c=c + k, class_=edge))
        else:
            first.append(tag("th", _heading(row), scope="col", data_c=c))
    head = tag("thead", tag("tr", first), tag("tr", second) if several else None)
    best = {(row.name, metric): _best(test, row, systems, metric) for row, metric in columns}
    body = []
    for s in systems:
        cells = []
        for n, (row, metric) in enumerate(columns):
            score = row.cells[s].scores.get(metric)
            marks = [
                "edge" if several and n % len(metrics) == 0 else "",
                "unseen" if row.cells[s].beyond else "",
                "best" if score and fixed(score.mean) == best[row.name, metric] else "",
            ]
            cells.append(_cell(report, row, s, score, " ".join(filter(None, marks)), published))
        body.append(tag("tr", tag("th", named(report, s), scope="row"), cells))
    table = tag("table", head, tag("tbody", body), class_="sortable scores", aria_label=label)
    toggle = tag("input", type="checkbox", data_opens="td details")
    every = tag("label", toggle, " Show intervals, seeds and p in every cell", class_="tool")
    notes = tag("p", _notes(report, test, rows, systems, metrics, published), class_="note")
    return tag("div", every, box(label, table), notes, class_="with-tool")


def _heading(row: BucketScores) -> list[Child]:
    few = ", few" if row.few else ""
    name = "all pairs" if row.name == ALL else row.name
    return [bdi(name), " ", tag("small", f"n {row.pairs:,}{few}")]


def _best(test: ScoredTest, row: BucketScores, systems: Sequence[int], metric: str) -> str | None:
    """The best mean as it is shown, so that what looks equal is marked alike."""
    higher = next(m.higher_is_better for m in test.metrics if m.name == metric)
    known = [row.cells[s].scores[metric].mean for s in systems if metric in row.cells[s].scores]
    if len(known) < 2:
        return None
    return fixed(max(known) if higher else min(known))


def _cell(
    report: Report, row: BucketScores, s: int, score: Score | None, marks: str, published: bool
) -> Markup:
    if score is None:
        return tag("td", EMPTY, class_=marks or None)
    star = STAR if significant(score) else ""
    beyond = BEYOND if row.cells[s].beyond else ""
    more: list[Child] = [f"95 %: {fixed(score.low)} to {fixed(score.high)}"]
    if len(score.seeds) > 1:
        more += [tag("br"), f"seeds: {', '.join(map(fixed, score.seeds))}"]
    if s != 0:
        more += [tag("br"), chance(score.p)]
    sup = tag("sup", star + beyond) if star or beyond else None
    shown = details([spread(score), sup], tag("p", more))
    paper = None
    if published and score.published is not None:
        difference = signed(score.mean - score.published)
        paper = tag("small", f"{fixed(score.published)} ({difference})", class_="paper")
    return tag("td", shown, paper, class_=marks or None, data_v=f"{score.mean:.6g}")


def _notes(
    report: Report,
    test: ScoredTest,
    rows: Sequence[BucketScores],
    systems: Sequence[int],
    metrics: Sequence[str],
    published: bool,
) -> list[Child]:
    """How to read the marks, as far as they occur in this table."""
    cells = [row.cells[s] for row in rows for s in systems]
    known = [cell.scores[m] for cell in cells for m in metrics if m in cell.scores]
    better = {m.name: "higher" if m.higher_is_better else "lower" for m in test.metrics}
    said: list[Child] = [", ".join(f"{m}: {better[m]} is better" for m in metrics) + ". "]
    if any(score.deviation is not None for score in known):
        said.append("Mean ± standard deviation over seeds. ")
    said.append("Bold: the best mean of its column, be the difference significant or not. ")
    if any(map(significant, known)):
        base = bdi(report.systems[0].label)
        said += [f"{STAR} p < {SIGNIFICANT} against ", base, ", uncorrected. "]
    if any(cell.beyond for cell in cells):
        said.append(f"{BEYOND} longer than any source in the training of that system. ")
    if any(row.few for row in rows):
        said.append("few: too few pairs for more than a hint. ")
    if published and any(score.published is not None for score in known):
        said.append("Below a score: the published number, and ours minus it. ")
    said.append("Open a score for its interval.")
    return said
