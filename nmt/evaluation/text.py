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
from nmt.evaluation.report import ALL, REFERENCES, Figure, Group, Report, TranslatedTest
from nmt.system import manifest
from nmt.system.outputs import Writer, text_writer

PROSE = 100  # columns of sentences
ACROSS = 7  # groups side by side: beyond training, all, five buckets; more go below
COLUMNS = (
    *("test", "group", "shortest", "longest", "pairs", "system", "runs", "unseen", "metric"),
    *("mean", "deviation", "low", "high", "p", "signature"),
)


def wrap(line: str) -> str:
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
    """The whole report: conclusion and tables of each test, systems, notes.

    `form` "github" gives Markdown, with a line for each system and no conclusion.
    """
    is_plain = form == "plain"
    blocks = [report.title] if is_plain else [f"{report.date}: `{report.command}`", report.title]
    for test in report.tests:
        total = test.group(ALL)
        head = f"{test.name}, {count(total.pairs if total else 0)} pairs; {describe_axis(test)}"
        blocks.append("\n".join(map(wrap, [head, *conclude(report, test)])) if is_plain else head)
        labels = order_systems(report, test) if best_first else report.labels
        for metric in test.metrics:
            blocks += _render_metric(report, test, metric, [*labels, REFERENCES], form)
    if any(system.parameters is not None for system in report.systems):
        cells = [[system.label, *system_cells(system)] for system in report.systems]
        blocks.append("Systems\n" + table(cells, ["", *SYSTEM_COLUMNS], form))
    notes = [wrap(note) if is_plain else f"- {note}" for note in notes_of(report)]
    return "\n\n".join([*blocks, "\n".join(notes)]) + "\n"


def _render_metric(
    report: Report, test: TranslatedTest, metric: Metric, labels: Sequence[str], form: str
) -> Iterator[str]:
    is_plain = form == "plain"
    separator = "\n" if is_plain else ", "
    groups, figures = report.table(test, metric.name)
    for start in range(0, len(groups), ACROSS):
        chosen = groups[start : start + ACROSS]
        rows = list[list[str]]()
        for label in labels:
            row = figures.get(label, [])[start : start + ACROSS]
            if not any(row):
                continue
            if is_plain and metric.is_main:
                rows += _detailed_rows(label, row, metric)
            else:
                cells = [_cell(f, group, metric) for f, group in zip(row, chosen, strict=True)]
                # room for two marks, so that numbers stand below each other
                rows.append([label, *(f"{cell}{m:{2 * is_plain}}" for cell, m in cells)])
        heading = [f"{group.name}{separator}{pairs(group)}" for group in chosen]
        title = f"{title_of(metric)}  ({metric.title})\n" + "\n" * (not is_plain)
        yield title + table(rows, ["", *heading], form)


def _detailed_rows(label: str, row: Sequence[Figure | None], metric: Metric) -> Iterator[list[str]]:
    """A system's scores, and below them interval, p and deviation over seeds, if any."""
    seeds = max(len(figure.seeds) for figure in row if figure)
    form = metric.form
    yield [label, *(f"{number(f.mean, form)}{marks(f):2}" if f else f"{EMPTY}  " for f in row)]
    below = {
        "95%": [interval(figure, metric) for figure in row],
        "p": [p_value(figure.p if figure else None) for figure in row],
        f"± {seeds} seeds": [number(f.deviation if f else None, form) for f in row],
    }
    for name, cells in below.items():
        if any(cell != EMPTY for cell in cells):
            yield [f"  {name}", *cells]


def _cell(figure: Figure | None, group: Group, metric: Metric) -> tuple[str, str]:
    """A figure in one line, without interval if the metric is not a main one; and its marks.

    The number of pairs is added where it is not that of the group: the loss beyond training is of
    the lines that the one system has not seen.
    """
    if figure is None:
        return EMPTY, ""
    text = mean(figure, metric)
    if metric.is_main:
        text += f" {interval(figure, metric)}"
    elif figure.pairs != group.pairs:
        text += f" (n = {count(figure.pairs)})"
    return text, marks(figure)


def tsv(report: Report) -> str:
    """One line for each figure, under a heading; empty: no such number. Nothing is rounded.

    `low` and `high` bound the 95% interval; `unseen` says that all of the group are longer
    than any in the system's training.
    """
    tests = {test.name: test for test in report.tests}
    runs = {system.label: len(system.runs) for system in report.systems}
    lines: list[Sequence[object]] = [COLUMNS]
    for figure in report.figures:
        test = tests[figure.test]
        group = test.group(figure.group)
        signatures = {metric.name: metric.signature for metric in test.metrics}
        values = {
            **vars(figure),
            "shortest": group and group.low,
            "longest": group and group.high,
            "runs": runs.get(figure.system),
            "unseen": "yes" if figure.unseen else "no",
            "signature": signatures.get(figure.metric),
        }
        lines.append([values[column] for column in COLUMNS])
    # a tab or line end in a name would break the table
    cells = ((" ".join(str("" if c is None else c).split()) for c in line) for line in lines)
    return "".join("\t".join(line) + "\n" for line in cells)


def writer_of(path: Path, report: Report, best_first: bool = False) -> Writer:
    """A function that writes a report in the format of the file's ending."""
    from nmt.evaluation import page

    forms: dict[str, Callable[[], str]] = {
        ".json": lambda: manifest.json_text(report.to_json()),
        ".tsv": lambda: tsv(report),
        ".html": lambda: page.html(report),
        ".md": lambda: render(report, best_first, "github"),
        ".txt": lambda: render(report, best_first),
    }
    form = forms.get(path.suffix.lower())
    return text_writer(form) if form else lambda file: page.draw(report, file)
