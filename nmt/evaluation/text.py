"""A report as text for a terminal, as Markdown, and as tab-separated values."""

import textwrap
from collections.abc import Callable, Iterator, Sequence

from tabulate import tabulate

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
from nmt.evaluation.report import ALL, REFERENCES, Figure, Group, Metric, Report, ScoredTest

PROSE = 100  # columns of sentences
ACROSS = 6  # groups side by side; more go below
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
    report: Report, test: ScoredTest, order: Sequence[int], form: str
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
            rows = [row for s in order for row in write(report, test, metric, chosen, s)]
            rows += _of_references(report, test, metric, chosen)
            heading = ["", *(f"{g.name}\n{pairs(g)}" for g in chosen)]
            if form == "github":
                heading = [cell.replace("\n", ", ") for cell in heading]
            body = table(rows, heading, form)
            yield (f"{title}\n\n{body}" if form == "github" else f"{title}\n{body}")


Rows = Iterator[list[str]]


def _cells(
    report: Report,
    test: ScoredTest,
    metric: Metric,
    groups: Sequence[Group],
    system: str,
    write: Callable[[Figure | None], str],
) -> list[str]:
    return [write(report.figure(metric.name, system, g.name, test.name)) for g in groups]


def _detailed(
    report: Report, test: ScoredTest, metric: Metric, groups: Sequence[Group], s: int
) -> Rows:
    """A system's scores; below, where known: interval, p, deviation over seeds."""
    system = report.systems[s]

    def line(name: str, write: Callable[[Figure | None], str]) -> list[str]:
        return [name, *_cells(report, test, metric, groups, system.label, write)]

    yield line(
        system.label, lambda f: f"{number(f.mean, metric.form)}{marks(f):2}" if f else f"{EMPTY}  "
    )
    lines = [
        line("  95%", lambda f: interval(f, metric)),
        line("  p", p_value),
        line(
            f"  ± {len(system.runs)} seeds",
            lambda f: number(f.deviation if f else None, metric.form),
        ),
    ]
    yield from (cells for cells in lines if any(cell != EMPTY for cell in cells[1:]))


def _means(
    report: Report, test: ScoredTest, metric: Metric, groups: Sequence[Group], s: int
) -> Rows:
    label = report.labels[s]
    cells = _cells(
        report, test, metric, groups, label, lambda f: number(f.mean if f else None, metric.form)
    )
    yield [label, *cells]


def _brief(
    report: Report, test: ScoredTest, metric: Metric, groups: Sequence[Group], s: int
) -> Rows:
    label = report.labels[s]

    def write(figure: Figure | None) -> str:
        if figure is None or not metric.is_main:
            return mean(figure, metric)
        return f"{mean(figure, metric)} {interval(figure, metric)}{marks(figure)}"

    yield [label, *_cells(report, test, metric, groups, label, write)]


def _of_references(
    report: Report, test: ScoredTest, metric: Metric, groups: Sequence[Group]
) -> Rows:
    """The same figure of the references themselves, where there is one."""
    cells = _cells(
        report,
        test,
        metric,
        groups,
        REFERENCES,
        lambda f: number(f.mean if f else None, metric.form),
    )
    if any(cell != EMPTY for cell in cells):
        yield [REFERENCES, *cells]


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
