"""A report of one test set: a block for each metric, buckets down, systems side by side."""

from collections.abc import Callable, Iterable, Sequence

from nmt.compare.notation import (
    BEYOND,
    EMPTY,
    SIGNS,
    STAR,
    beyond,
    count,
    marks_of,
    number,
    p_value,
    percent,
    sign,
    star,
)
from nmt.compare.report import FEW, SIGNIFICANT, TESTED, Report, Score, ScoredTest, SystemScores
from nmt.compare.text.columns import beside, padded

TERMINAL = 100  # columns that a block should not exceed
SYSTEMS = 4  # side by side; more go below
HEADING = 17  # longer labels are cut to their column, or to this if that is wider

OTHERS: Sequence[tuple[str, Callable[[SystemScores], str]]] = (  # heading, what it shows of a cell
    (
        "length ratio  (tokens of the hypotheses / of the references, as BLEU counts them)",
        lambda cell: number(cell.ratio, 2),
    ),
    (
        f"{SIGNS['dropped_half']}  (% of joined lines)",
        lambda cell: percent(sign(cell, "dropped_half")),
    ),
    (
        "perplexity of the references  (by each model's own pieces)",
        lambda cell: number(cell.perplexity, 2),
    ),
)


def blocks(report: Report) -> str:
    """The blocks of all metrics, how to read them, and the signatures of the scores."""
    (test,) = report.tests
    lengths = f"source length in {test.unit}" if test.unit else "no source, hence no lengths"
    parts = [f"{count(test.rows[-1].pairs)} pairs; {lengths}"]
    for group in _groups(len(report.systems)):
        for metric in test.metrics:
            block = _scores(report, test, group, metric.name)
            parts.append(f"{metric.name}  ({metric.title})\n{block}")
        for heading, shown in OTHERS:
            columns = [
                [report.systems[s].label, *(shown(row.cells[s]) for row in test.rows)]
                for s in group
            ]
            if any(cell != EMPTY for _, *cells in columns for cell in cells):
                parts.append(f"{heading}\n{_block(test, columns)}")
    return "\n\n".join([*parts, _notes(report, test), _signatures(test)]) + "\n"


def _groups(systems: int) -> Iterable[list[int]]:
    """The baseline with up to three others, as often as it takes."""
    yield list(range(min(systems, SYSTEMS)))
    for first in range(SYSTEMS, systems, SYSTEMS - 1):
        yield [0, *range(first, min(first + SYSTEMS - 1, systems))]


def _scores(report: Report, test: ScoredTest, group: list[int], metric: str) -> str:
    """The block of one metric; p-values have columns where these fit, else only their stars."""
    for with_p, gap in ((True, "  "), (False, "  "), (False, " ")):
        columns = []
        for s in group:
            columns.append([report.systems[s].label, *_column(test, s, metric, stars=not with_p)])
            if with_p and s > 0:
                scores = [row.cells[s].scores.get(metric) for row in test.rows]
                columns.append(["p", *map(_p, scores)])
        block = _block(test, columns, gap)
        if max(map(len, block.split("\n"))) <= TERMINAL:
            break
    return block


def _column(test: ScoredTest, s: int, metric: str, stars: bool) -> list[str]:
    """Scores with intervals, the numbers of a column right under each other, then the marks."""
    cells = [row.cells[s] for row in test.rows]
    known = [cell.scores[metric] for cell in cells if metric in cell.scores]
    wide = [
        max((len(number(value)) for value in values), default=1)
        for values in ([e.mean for e in known], [e.low for e in known], [e.high for e in known])
    ]
    texts = []
    for cell in cells:
        score = cell.scores.get(metric)
        if score is None:
            texts.append(EMPTY.rjust(wide[0]))
            continue
        mean, low, high = (
            number(value).rjust(n)
            for value, n in zip((score.mean, score.low, score.high), wide, strict=True)
        )
        texts.append(f"{mean} [{low}, {high}]{beyond(cell)}{star(score) if stars else ''}")
    return texts


def _p(score: Score | None) -> str:
    return EMPTY if score is None or score.p is None else p_value(score.p) + star(score)


def _block(test: ScoredTest, columns: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """Lines of a table: length, pairs, then the columns, each as wide as it needs."""
    pairs = padded(["pairs", *(count(row.pairs) for row in test.rows)], right=True)
    few = padded(["", *(" few" if row.few else "" for row in test.rows)])
    table = [
        ["length", *(row.name for row in test.rows)],
        [n + mark for n, mark in zip(pairs, few, strict=True)],
    ]
    for label, *cells in columns:
        width = max(*map(len, cells), min(len(label), HEADING))
        table.append([label if len(label) <= width else label[: width - 1] + "…", *cells])
    return "\n".join(beside(list(map(padded, table)), gap))


def _notes(report: Report, test: ScoredTest) -> str:
    """How to read the marks, as far as they occur."""
    marks = marks_of(test.rows)
    notes = [
        f"[low, high]: 95% interval, bootstrap of {report.samples} samples, seed {report.seed}"
    ]
    if len(report.systems) > 1:
        notes.append(
            f"p: paired bootstrap against {report.systems[0].label}, two-sided, from {TESTED} "
            f"pairs; {STAR} p < {SIGNIFICANT}, uncorrected"
        )
    if marks.few:
        notes.append(f"few: under {FEW} pairs, take it as a hint")
    if marks.beyond:
        notes.append(f"{BEYOND} every source is longer than any this system was trained on")
    models = {s["label"] for s in report.about.get("systems", ()) if s.get("decode")}
    trained = [
        f"{s.label} {'unknown' if s.longest_trained is None else s.longest_trained}"
        for s in report.systems
        if s.longest_trained is not None or s.label in models
    ]
    if trained and test.unit:
        notes.append(f"longest source in training: {', '.join(trained)}")
    if test.longest is not None:
        notes.append(f"longest source in this test: {test.longest}")
    return "\n".join(notes)


def _signatures(test: ScoredTest) -> str:
    names = padded([metric.name for metric in test.metrics])
    return "\n".join(beside([names, [metric.signature for metric in test.metrics]], "  "))
