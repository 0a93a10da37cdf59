"""A study for a terminal: tables in the paper's layout, then speed, then under-translation."""

import textwrap
from collections.abc import Callable, Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

from nmt.compare.report import ALL, FEW, SIGNIFICANT, TESTED
from nmt.compare.study import Cell, PaperTable, Row, Score, Study, Test

WIDTH = 110  # columns of a table; more buckets than fit go below
PROSE = 100  # columns of sentences
LABEL = 26  # a longer name of a system has a line to itself
GAP = "   "  # between columns
TIGHTER = ((" / ", GAP), (" / ", "  "), ("/", "  "))  # between metrics, and between columns
STAR, UNSEEN, EMPTY = "*", "^", "-"


class Line(NamedTuple):
    """One line of a table."""

    name: str
    texts: list[str]  # by column
    optional: bool = False  # left out where no column shown has a number


def text(study: Study) -> str:
    """All tables of a study, with the notes that they need."""
    parts = [study.title, *(_table(study, table) for table in study.tables)]
    parts.append(_systems(study))
    parts += [told for test in study.tests if (told := _signs(study, test))]
    parts += [_marks(study), _signatures(study)]
    if study.notes:
        parts.append("\n".join(_wrapped(note) for note in study.notes))
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(study: Study, table: PaperTable) -> str:
    """One table of the paper, and the intervals of its first metric below."""
    test = next(each for each in study.tests if each.name == table.test)
    rows = [row for row in test.rows if row.pairs and (table.buckets or row.name == ALL)]
    heading = _wrapped(f"{table.name}: {table.caption}")
    unit = f"; source lengths in {test.unit}" if test.unit and table.buckets else ""
    what = f"{test.name}, {test.rows[-1].pairs:,} pairs{unit}; {' / '.join(table.metrics)}"
    lines = [line for s in table.systems for line in _lines(study, table, rows, s)]
    intervals = [
        Line(study.systems[s].label, [_interval(row.cells[s], table.metrics[0]) for row in rows])
        for s in table.systems
    ]
    fitting = (_blocks(rows, _aligned(lines, slash), gap) for slash, gap in TIGHTER)
    blocks = next((one for one in fitting if "\n\n" not in one), None)
    parts = [heading + "\n" + _wrapped(what), blocks or _blocks(rows, _aligned(lines, " / "))]
    parts.append(f"95% intervals of {table.metrics[0]}\n" + _blocks(rows, intervals))
    return "\n\n".join(parts)


class _Raw(NamedTuple):
    """A line of a paper's table before it is aligned."""

    name: str
    numbers: list[list[str]]  # by column and metric, perhaps with a star
    marks: list[str]  # by column
    optional: bool


def _lines(study: Study, table: PaperTable, rows: Sequence[Row], s: int) -> list[_Raw]:
    """A system's scores; below, where known, deviation, the paper's scores and the difference."""
    cells = [row.cells[s] for row in rows]

    def line(name: str, shown: Callable[[Score], str]) -> _Raw:
        numbers = [
            [EMPTY if (e := cell.scores.get(m)) is None else shown(e) for m in table.metrics]
            for cell in cells
        ]
        return _Raw(name, numbers, [""] * len(cells), True)

    scores = [cell.scores[m] for cell in cells for m in table.metrics if m in cell.scores]
    marks = [UNSEEN if cell.unseen and cell.scores else "" for cell in cells]
    found = [line(study.systems[s].label, _mean)._replace(marks=marks, optional=False)]
    if any(e.deviation is not None for e in scores):
        found.append(line(f"  ± {len(study.systems[s].runs)} seeds", _deviation))
    if table.published and any(e.published is not None for e in scores):
        found += [line("  paper", _published), line("  difference", _difference)]
    return found


def _aligned(lines: Sequence[_Raw], slash: str) -> list[Line]:
    """`31.7* / 57.9^`: the decimal points of a column under each other."""
    every = [numbers for line in lines for numbers in line.numbers]
    stars = any(STAR in number for numbers in every for number in numbers)
    wide = [max(len(n.rstrip(STAR)) for n in column) for column in zip(*every, strict=True)]

    def padded(number: str, width: int) -> str:
        star = number[len(number.rstrip(STAR)) :]
        return number.rstrip(STAR).rjust(width) + (star or " " if stars else "")

    found = []
    for line in lines:
        texts = [
            slash.join(map(padded, numbers, wide)) + mark
            for numbers, mark in zip(line.numbers, line.marks, strict=True)
        ]
        found.append(Line(line.name, texts, line.optional))
    return found


def _mean(score: Score) -> str:
    return f"{score.mean:.1f}" + (STAR if _starred(score) else "")


def _deviation(score: Score) -> str:
    return EMPTY if score.deviation is None else f"{score.deviation:.1f}"


def _published(score: Score) -> str:
    return EMPTY if score.published is None else f"{score.published:.1f}"


def _difference(score: Score) -> str:
    if score.published is None:
        return EMPTY
    return f"{round(score.mean - score.published, 1) + 0.0:+.1f}"  # + 0.0: no "-0.0"


def _interval(cell: Cell, metric: str) -> str:
    score = cell.scores.get(metric)
    return EMPTY if score is None else f"[{score.low:.1f}, {score.high:.1f}]"


def _starred(score: Score) -> bool:
    return score.p is not None and score.p < SIGNIFICANT


def _blocks(rows: Sequence[Row], lines: Sequence[Line], gap: str = GAP) -> str:
    """Buckets across, as many side by side as fit; the names stand before each block."""
    counts = [f"n = {row.pairs:,}{' few' if row.few else ''}" for row in rows]
    head = [Line("", [row.name for row in rows]), Line("", counts)]
    widths = [max(len(line.texts[c]) for line in [*head, *lines]) for c in range(len(rows))]
    names = _names([line.name for line in lines])
    blocks, start = [], 0
    while start < len(rows):
        end, room = start + 1, WIDTH - names - len(gap) - widths[start]
        while end < len(rows) and room >= len(gap) + widths[end]:
            room -= len(gap) + widths[end]
            end += 1
        shown = []
        for line in [*head, *lines]:
            texts = [line.texts[c].ljust(widths[c]) for c in range(start, end)]
            if not line.optional or any(map(str.isdigit, "".join(texts))):
                shown += _named(line.name, names, gap.join(["", *texts]))
        blocks.append("\n".join(shown))
        start = end
    return "\n\n".join(blocks)


def _names(names: Sequence[str]) -> int:
    """The width of the column of names."""
    return max((len(name) for name in names if len(name) <= LABEL), default=0)


def _named(name: str, width: int, rest: str) -> list[str]:
    """A line of a table; a long name has one of its own."""
    if len(name) > LABEL:
        return [_wrapped(name), (" " * width + rest).rstrip()]
    return [(name.ljust(width) + rest).rstrip()]


def _systems(study: Study) -> str:
    """Size, budget and speed of each system."""
    heading = ("parameters", "of encodings", "seeds", "updates", "dev ppl", "longest", "tokens/s")
    lines: list[Line] = []
    for system in study.systems:
        steps = sorted({run.step for run in system.runs})
        speeds = [r.tokens_per_second for r in system.runs if r.tokens_per_second is not None]
        perplexities = [r.dev_perplexity for r in system.runs if r.dev_perplexity is not None]
        texts = [
            f"{system.parameters:,}",
            f"{system.encoding_parameters:,}",
            str(len(system.runs)),
            f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,}-{steps[-1]:,}",
            _spread(perplexities),
            EMPTY if system.longest_trained is None else f"{system.longest_trained:,}",
            f"{median(speeds):,.0f}" if speeds else EMPTY,
        ]
        lines.append(Line(system.label, texts))
    widths = [max(len(row[c]) for row in (heading, *(t.texts for t in lines))) for c in range(7)]
    names, shown = _names([line.name for line in lines]), list[str]()
    for line in [Line("", list(heading)), *lines]:
        cells = [cell.rjust(width) for cell, width in zip(line.texts, widths, strict=True)]
        shown += _named(line.name, names, "  ".join(["", *cells]))
    notes = "longest: source in training, in pieces; tokens/s: of the target, in training, median"
    return "\n".join(["Systems", *shown, notes])


def _spread(values: Sequence[float]) -> str:
    if not values:
        return EMPTY
    return f"{fmean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


SIGNS = {  # of a diagnosis, each a share
    "repeated": "repeated 4-grams, %",
    "unattended": "source never attended, %",
    "dropped_half": "second half dropped, %",
}


def _signs(study: Study, test: Test) -> str:
    """Signs of under-translation: a block for each that is known of any system."""
    rows = [row for row in test.rows if row.pairs]
    tested = [s for s in range(len(study.systems)) if any(row.cells[s].scores for row in rows)]
    lines = [Line("length ratio", [""] * len(rows))]
    for s in tested:
        ratios = [row.cells[s].ratio for row in rows]
        lines.append(
            Line(
                f"  {study.systems[s].label}", [EMPTY if r is None else f"{r:.2f}" for r in ratios]
            )
        )
    for key, title in SIGNS.items():
        found = {s: [_sign(row.cells[s], key) for row in rows] for s in tested}
        if all(value is None for values in found.values() for value in values):
            continue
        lines.append(Line(title, [""] * len(rows)))
        for s, values in found.items():
            lines.append(Line(f"  {study.systems[s].label}", list(map(_percent, values))))
        if key == "repeated":
            values = [_sign(row.cells[tested[0]], "repeated_reference") for row in rows]
            lines.append(Line("  (the references)", list(map(_percent, values))))
    return f"Under-translation, {test.name}\n" + _blocks(rows, lines)


def _sign(cell: Cell, key: str) -> float | None:
    return None if cell.diagnosis is None else getattr(cell.diagnosis, key)


def _percent(share: float | None) -> str:
    return EMPTY if share is None else f"{100 * share:.1f}"


def _marks(study: Study) -> str:
    """How to read the tables."""
    cells = [cell for test in study.tests for row in test.rows for cell in row.cells]
    scores = [score for cell in cells for score in cell.scores.values()]
    notes = [
        f"95% intervals: bootstrap over the pairs, {study.samples} samples, seed {study.seed}; "
        "the seeds of training are held fixed."
    ]
    if any(score.p is not None for score in scores):
        notes.append(
            f"{STAR} p < {SIGNIFICANT} against the first system of the study that translated the "
            f"test: paired bootstrap of the means over seeds, two-sided, uncorrected, from "
            f"{TESTED} pairs."
        )
    if any(cell.unseen for cell in cells):
        notes.append(f"{UNSEEN} every source is longer than any in the system's training.")
    if any(row.few for test in study.tests for row in test.rows):
        notes.append(f"few: under {FEW} pairs, take it as a hint.")
    if any(score.published is not None for score in scores):
        notes.append("paper: Rosendahl et al. (2019).")
    return "\n".join(map(_wrapped, notes))


def _signatures(study: Study) -> str:
    """How each metric was computed, once where all tests agree."""
    found = list(
        dict.fromkeys(f"{m.name}: {m.signature}" for test in study.tests for m in test.metrics)
    )
    return "\n".join(map(_wrapped, found))


def _wrapped(line: str) -> str:
    return textwrap.fill(line, PROSE, subsequent_indent="  ", break_on_hyphens=False)
