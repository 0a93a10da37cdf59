"""A report as text for a terminal, as Markdown, and as tab-separated values."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from nmt.evaluation.metrics import Metric
from nmt.evaluation.notation import (
    EMPTY,
    SYSTEM_COLUMNS,
    conclude,
    count,
    describe_axis,
    interval,
    marks,
    mean,
    notes_of,
    number,
    order_systems,
    p_value,
    pairs,
    system_cells,
    title_of,
)
from nmt.evaluation.report import ALL, REFERENCES, Group, Report, TranslatedTest
from nmt.system import manifest
from nmt.system.outputs import Writer, text_writer

PROSE = 100  # columns of sentences
ACROSS = 7  # groups side by side: five buckets, beyond training, all; more go below
COLUMNS = (
    *("test", "group", "shortest", "longest", "pairs", "system", "runs", "unseen", "metric"),
    *("mean", "deviation", "low", "high", "p", "signature"),
)


def wrap(line: str) -> str:
    """A sentence in lines that are not too long."""
    return textwrap.fill(line, PROSE, subsequent_indent="  ", break_on_hyphens=False)


def table(rows: Sequence[Sequence[str]], heading: Sequence[str], form: str = "plain") -> str:
    """Aligned columns; `form` is tabulate's. Cells are text, and stay as they are."""
    align = ("left", *["right" if form == "plain" else "left"] * (len(heading) - 1))
    return tabulate(
        [[cell.replace("|", "\\|") if form == "github" else cell for cell in row] for row in rows],
        heading,
        form,
        disable_numparse=True,
        colalign=align if rows else None,
        preserve_whitespace=True,
    )


def render(report: Report, best_first: bool = False, form: str = "plain") -> str:
    """The scores of each test, what else is known of it, the systems, and how to read it all.

    `form` "github" gives Markdown, with a line for each system.
    """
    blocks = [report.title]
    for test in report.tests:
        order = order_systems(report, test, best_first)
        blocks += _test_blocks(report, test, order, form)
    if any(system.parameters is not None for system in report.systems):
        cells = [[system.label, *system_cells(system)] for system in report.systems]
        blocks.append("Systems\n" + table(cells, ["", *SYSTEM_COLUMNS], form))
    notes = notes_of(report)
    if form == "github":
        blocks = [f"{report.date}: `{report.command}`", *blocks]
        return "\n\n".join([*blocks, "\n".join(f"- {note}" for note in notes)]) + "\n"
    return "\n\n".join([*blocks, "\n".join(map(wrap, notes))]) + "\n"


def _test_blocks(
    report: Report, test: TranslatedTest, order: Sequence[int], form: str
) -> Iterator[str]:
    total = test.group(ALL)
    head = f"{test.name}, {count(total.pairs if total else 0)} pairs; {describe_axis(test)}"
    yield head if form == "github" else "\n".join(map(wrap, [head, *conclude(report, test)]))
    for metric in test.metrics:
        groups = report.known(test, metric.name, test.groups)
        write = _brief if form == "github" else _detailed if metric.is_main else _means
        title = f"{title_of(metric)}  ({metric.title})"
        for first in range(0, len(groups), ACROSS):
            chosen = groups[first : first + ACROSS]
            labels = [*(report.labels[s] for s in order), REFERENCES]
            rows = [row for label in labels for row in write(report, test, metric, chosen, label)]
            rows = [row for row in rows if any(cell.strip() != EMPTY for cell in row[1:])]
            heading = ["", *(f"{g.name}\n{pairs(g)}" for g in chosen)]
            if form == "github":
                heading = [cell.replace("\n", ", ") for cell in heading]
            body = table(rows, heading, form)
            yield (f"{title}\n\n{body}" if form == "github" else f"{title}\n{body}")


Rows = Iterator[list[str]]


def _detailed(
    report: Report, test: TranslatedTest, metric: Metric, groups: Sequence[Group], label: str
) -> Rows:
    """A system's scores; below, where known: interval, p, deviation over seeds."""
    row = report.across(test, metric.name, label, groups)
    seeds = max((len(figure.seeds) for figure in row if figure), default=1)
    form = metric.form
    yield [label, *(f"{number(f.mean if f else None, form)}{marks(f):2}" for f in row)]
    lines = [
        ["  95%", *(interval(figure, metric) for figure in row)],
        ["  p", *map(p_value, row)],
        [f"  ± {seeds} seeds", *(number(f.deviation if f else None, form) for f in row)],
    ]
    yield from (cells for cells in lines if any(cell != EMPTY for cell in cells[1:]))


def _means(
    report: Report, test: TranslatedTest, metric: Metric, groups: Sequence[Group], label: str
) -> Rows:
    """A system's means, and of how many pairs where these are its own."""
    cells = []
    for figure, group in zip(report.across(test, metric.name, label, groups), groups, strict=True):
        own = figure and figure.pairs != group.pairs
        pairs_of_its_own = f" (n = {count(figure.pairs)})" if figure and own else ""
        cells.append(number(figure.mean if figure else None, metric.form) + pairs_of_its_own)
    yield [label, *cells]


def _brief(
    report: Report, test: TranslatedTest, metric: Metric, groups: Sequence[Group], label: str
) -> Rows:
    """A system's means with their intervals and marks, in one line."""
    row = report.across(test, metric.name, label, groups)
    known = [f"{mean(f, metric)} {interval(f, metric)}{marks(f)}" if f else EMPTY for f in row]
    yield [label, *(known if metric.is_main else (mean(f, metric) for f in row))]


def tsv(report: Report) -> str:
    """One line for each figure, under a heading; empty: no such number. Nothing is rounded.

    `low` and `high` bound the 95% interval; `unseen` says that all of the group are longer
    than any in the system's training.
    """
    tests = {test.name: test for test in report.tests}
    runs = {system.label: len(system.runs) for system in report.systems}
    lines: list[tuple[str, ...]] = [COLUMNS]
    for figure in report.figures:
        test = tests[figure.test]
        group = test.group(figure.group)
        metric = next((m for m in test.metrics if m.name == figure.metric), None)
        known = {
            **vars(figure),
            "shortest": group and group.low,
            "longest": group and group.high,
            "runs": runs.get(figure.system),
            "unseen": "yes" if figure.unseen else "no",
            "signature": metric and metric.signature,
        }
        lines.append(tuple(_cell(known[column]) for column in COLUMNS))
    return "".join("\t".join(line) + "\n" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return " ".join(text.split())  # a tab or line end in a name would break the table


def writer_of(path: Path, report: Report, best_first: bool = False) -> Writer:
    """What writes a report in the form that the name of its file says: a picture, else text."""
    from nmt.evaluation import page, plot

    forms: dict[str, Callable[[], str]] = {
        ".json": lambda: manifest.json_text(report.to_json()),
        ".tsv": lambda: tsv(report),
        ".html": lambda: page.html(report),
        ".md": lambda: render(report, best_first, "github"),
        ".txt": lambda: render(report, best_first),
    }
    form = forms.get(path.suffix.lower())
    return text_writer(form) if form else lambda place: plot.draw(report, place)
