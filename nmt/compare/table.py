"""A report as text: one block for each metric, buckets down, systems side by side."""

from collections.abc import Iterable, Sequence

from nmt.compare.report import FEW, SIGNIFICANT, TESTED, Cell, Estimate, Report, Row

WIDTH = 100  # columns of a terminal that a table should not exceed
SYSTEMS = 4  # side by side; more go below
HEADING = 17  # longer labels are cut to their column, or to this if that is wider
STAR, UNSEEN, EMPTY = "*", "^", "-"

Column = tuple[str, list[str]]  # heading, one cell for each row


def render(report: Report) -> str:
    """The tables of all metrics, how to read them, and the signatures of the scores."""
    parts = [_opening(report)]
    for group in _groups(len(report.systems)):
        for metric in report.metrics:
            parts.append(f"{metric.name}  ({metric.title})\n" + _scores(report, group, metric.name))
        parts.append(
            "length ratio  (tokens of the hypotheses / of the references, as BLEU counts them)\n"
            + _block(report.rows, [(report.systems[s], _ratios(report.rows, s)) for s in group])
        )
    return "\n\n".join([*parts, _notes(report), _signatures(report)]) + "\n"


def _groups(systems: int) -> Iterable[list[int]]:
    """The baseline with up to three others, as often as it takes."""
    yield list(range(min(systems, SYSTEMS)))
    for first in range(SYSTEMS, systems, SYSTEMS - 1):
        yield [0, *range(first, min(first + SYSTEMS - 1, systems))]


def _opening(report: Report) -> str:
    pairs = report.rows[-1].pairs
    lengths = f"source length in {report.unit}" if report.unit else "no source, hence no lengths"
    return f"{pairs:,} pairs; {lengths}"


def _scores(report: Report, group: list[int], metric: str) -> str:
    """The block of one metric; p-values have columns where these fit, else only their stars."""
    for with_p, gap in ((True, "  "), (False, "  "), (False, " ")):
        columns = []
        for s in group:
            estimates = [row.cells[s].scores.get(metric) for row in report.rows]
            cells = [row.cells[s] for row in report.rows]
            columns.append((report.systems[s], _estimates(estimates, cells, stars=not with_p)))
            if with_p and s > 0:
                columns.append(("p", [_p(e) for e in estimates]))
        text = _block(report.rows, columns, gap)
        if max(map(len, text.split("\n"))) <= WIDTH:
            break
    return text


def _estimates(
    estimates: Sequence[Estimate | None], cells: Sequence[Cell], stars: bool
) -> list[str]:
    """Scores with intervals, the numbers of a column right under each other, then the marks."""
    there = [e for e in estimates if e is not None]
    wide = [
        max((len(f"{getattr(e, part):.1f}") for e in there), default=1)
        for part in ("score", "low", "high")
    ]
    texts = []
    for e, cell in zip(estimates, cells, strict=True):
        if e is None:
            texts.append(EMPTY.rjust(wide[0]))
            continue
        text = f"{e.score:{wide[0]}.1f} [{e.low:{wide[1]}.1f}, {e.high:{wide[2]}.1f}]"
        text += UNSEEN if cell.unseen else ""
        texts.append(text + (STAR if stars and _significant(e) else ""))
    return texts


def _p(estimate: Estimate | None) -> str:
    if estimate is None or estimate.p is None:
        return EMPTY
    shown = f"{estimate.p:.3f}" if estimate.p >= 0.001 else "<.001"
    return shown + (STAR if _significant(estimate) else "")


def _significant(estimate: Estimate) -> bool:
    return estimate.p is not None and estimate.p < SIGNIFICANT


def _ratios(rows: Sequence[Row], system: int) -> list[str]:
    ratios = [row.cells[system].ratio for row in rows]
    return [EMPTY if ratio is None else f"{ratio:.2f}" for ratio in ratios]


def _block(rows: Sequence[Row], columns: Sequence[Column], gap: str = "  ") -> str:
    """Lines of a table: length, pairs, then the columns, each as wide as it needs."""
    few = [" few" if row.few else "" for row in rows]
    pad = max(map(len, few))
    pairs = [f"{row.pairs:,}" for row in rows]
    digits = max(len("pairs"), *map(len, pairs))
    counts = [n.rjust(digits) + mark.ljust(pad) for n, mark in zip(pairs, few, strict=True)]
    whole: list[Column] = [
        ("length", [row.name for row in rows]),
        ("pairs".rjust(digits), counts),
        *columns,
    ]
    padded = []
    for heading, cells in whole:
        width = max(*map(len, cells), min(len(heading), HEADING))
        padded.append([_clip(heading, width).ljust(width), *(c.ljust(width) for c in cells)])
    return "\n".join(gap.join(line).rstrip() for line in zip(*padded, strict=True))


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _notes(report: Report) -> str:
    """How to read the marks, as far as they occur."""
    cells = [cell for row in report.rows for cell in row.cells]
    notes = [
        f"[low, high]: 95% interval, bootstrap of {report.samples} samples, seed {report.seed}"
    ]
    if len(report.systems) > 1:
        notes.append(
            f"p: paired bootstrap against {report.systems[0]}, two-sided, from {TESTED} pairs; "
            f"{STAR} p < {SIGNIFICANT}, uncorrected"
        )
    if any(row.few for row in report.rows):
        notes.append(f"few: under {FEW} pairs, take it as a hint")
    if any(cell.unseen for cell in cells):
        notes.append(f"{UNSEEN} every source is longer than any this system was trained on")
    if any(report.longest_trained) and report.unit:
        known = [
            f"{label} {longest}"
            for label, longest in zip(report.systems, report.longest_trained, strict=True)
            if longest is not None
        ]
        notes.append(f"longest source in training: {', '.join(known)}")
    if report.longest_tested is not None:
        notes.append(f"longest source in this test: {report.longest_tested}")
    return "\n".join(notes)


def _signatures(report: Report) -> str:
    width = max(len(metric.name) for metric in report.metrics)
    return "\n".join(f"{m.name:{width}}  {m.signature}" for m in report.metrics)
