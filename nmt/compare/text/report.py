"""A report for a terminal: tables in the paper's layout, then speed, then under-translation."""

from statistics import median

from nmt.compare.notation import (
    BEYOND,
    EMPTY,
    SIGNS,
    STAR,
    count,
    marks_of,
    mean_and_deviation,
    number,
    percent,
    reference_sign,
    sign,
)
from nmt.compare.report import FEW, SIGNIFICANT, TESTED, ComparedSystem, Report, ScoredTest
from nmt.compare.text.columns import NamedLine, blocks, named, wrapped
from nmt.compare.text.paper import heading, paper_table


def tables(report: Report) -> str:
    """All tables of a report, with the notes that they need."""
    parts = [report.title, *(paper_table(report, table) for table in report.tables)]
    parts.append(_systems(report))
    parts += [_signs(report, test) for test in report.tests]
    parts += [_marks(report), _signatures(report), "\n".join(map(wrapped, report.notes))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _systems(report: Report) -> str:
    """Size, budget and speed of each system."""
    columns = ["parameters", "of encodings", "seeds", "updates", "dev ppl", "longest", "tokens/s"]
    lines = [NamedLine(system.label, _system(system)) for system in report.systems]
    table = named([NamedLine("", columns), *lines], "  ", right=True)
    notes = "longest: source in training, in pieces; tokens/s: of the target, in training, median"
    return "\n".join(["Systems", *table, notes])


def _system(system: ComparedSystem) -> list[str]:
    steps = sorted({run.step for run in system.runs})
    speeds = [run.tokens_per_second for run in system.runs if run.tokens_per_second is not None]
    return [
        count(system.parameters),
        count(system.encoding_parameters),
        str(len(system.runs)),
        "-".join(count(step) for step in dict.fromkeys([*steps[:1], *steps[-1:]])) or EMPTY,
        _perplexity([r.dev_perplexity for r in system.runs if r.dev_perplexity is not None]),
        count(system.longest_trained),
        count(median(speeds) if speeds else None),
    ]


def _perplexity(values: list[float]) -> str:
    if not values:
        return EMPTY
    mean, deviation = mean_and_deviation(values)
    return number(mean, 2) + ("" if deviation is None else f" ± {number(deviation, 2)}")


def _signs(report: Report, test: ScoredTest) -> str:
    """Signs of under-translation: a block for each that is known of any system."""
    rows = [row for row in test.rows if row.pairs]
    labels = {
        s: f"  {system.label}"
        for s, system in enumerate(report.systems)
        if any(row.cells[s].scores for row in rows)
    }
    nothing = [""] * len(rows)
    lines = [NamedLine("length ratio", nothing)]
    lines += [
        NamedLine(label, [number(row.cells[s].ratio, 2) for row in rows])
        for s, label in labels.items()
    ]
    for name, title in SIGNS.items():
        values = {s: [sign(row.cells[s], name) for row in rows] for s in labels}
        if all(value is None for shares in values.values() for value in shares):
            continue
        lines.append(NamedLine(f"{title}, %", nothing))
        lines += [NamedLine(labels[s], list(map(percent, shares))) for s, shares in values.items()]
        if name == "repeated":
            references = [percent(reference_sign(row)) for row in rows]
            lines.append(NamedLine("  (the references)", references))
    return f"Under-translation, {test.name}\n" + "\n\n".join(blocks([*heading(rows), *lines]))


def _marks(report: Report) -> str:
    """How to read the tables."""
    marks = marks_of(row for test in report.tests for row in test.rows)
    notes = [
        f"95% intervals: bootstrap over the pairs, {report.samples} samples, seed {report.seed}; "
        "the seeds of training are held fixed."
    ]
    if marks.tested:
        notes.append(
            f"{STAR} p < {SIGNIFICANT} against the first system of the study that translated the "
            f"test: paired bootstrap of the means over seeds, two-sided, uncorrected, from "
            f"{TESTED} pairs."
        )
    if marks.beyond:
        notes.append(f"{BEYOND} every source is longer than any in the system's training.")
    if marks.few:
        notes.append(f"few: under {FEW} pairs, take it as a hint.")
    if marks.published:
        notes.append("paper: Rosendahl et al. (2019).")
    return "\n".join(map(wrapped, notes))


def _signatures(report: Report) -> str:
    """How each metric was computed, once where all tests agree."""
    metrics = [metric for test in report.tests for metric in test.metrics]
    return "\n".join(map(wrapped, dict.fromkeys(f"{m.name}: {m.signature}" for m in metrics)))
