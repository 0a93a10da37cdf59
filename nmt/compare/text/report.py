"""A report for a terminal: scores, then size and speed, then under-translation, then notes."""

from collections.abc import Callable
from functools import partial

from nmt.compare.notation import (
    EMPTY,
    OF_LOSSES,
    OF_PARTS,
    SIGNS,
    count,
    deviating,
    number,
    of_part,
    over_runs,
    percent,
    reference_sign,
    share,
    share_interval,
    sign,
)
from nmt.compare.report import ComparedSystem, Report, ScoredTest, SystemScores
from nmt.compare.text.columns import NamedLine, aligned_table, blocks, wrap
from nmt.compare.text.grid import heading, paper_table, test_grids
from nmt.compare.text.notes import notes_of

ABOUT_LOSSES = (
    "lost: share of the references' character 6-grams that do not stand in the translations, with "
    "95% intervals. end sign + place + content = lost beyond - lost within the trained length. end "
    "sign: what arrives where outputs are forced to the lengths of the references; place: what "
    "then is lost more than of the beginnings of the lines; content: what of these is lost more "
    "than within."
)


def render(report: Report) -> str:
    """The tables of the paper, or a grid for each metric; what is known of systems; the notes."""
    parts = [report.title, *(paper_table(report, table) for table in report.tables)]
    in_tables = {table.test for table in report.tables}
    parts += [test_grids(report, test) for test in report.tests if test.name not in in_tables]
    if any(system.parameters is not None for system in report.systems):
        parts.append(_systems(report))
    for test in report.tests:
        parts += [_signs(report, test), _places(report, test), _losses(report, test)]
    if any(loss for test in report.tests for loss in test.losses):
        parts.append(wrap(ABOUT_LOSSES))
    parts.append("\n".join(map(wrap, notes_of(report))))
    return "\n\n".join(filter(None, parts)) + "\n"


def _systems(report: Report) -> str:
    """Size, budget and speed of each system."""
    columns = ["parameters", "of encodings", "seeds", "updates", "dev ppl", "longest", "tokens/s"]
    lines = [NamedLine(system.label, _system(system)) for system in report.systems]
    table = aligned_table([NamedLine("", columns), *lines])
    notes = "longest: source in training, in pieces; tokens/s: of the target, in training, median"
    return "\n".join(["Systems", *table, notes])


def _system(system: ComparedSystem) -> list[str]:
    steps = sorted({run.step for run in system.runs})
    return [
        count(system.parameters),
        count(system.encoding_parameters),
        count(len(system.runs) or None),
        "-".join(count(step) for step in dict.fromkeys([*steps[:1], *steps[-1:]])) or EMPTY,
        deviating(*over_runs(system, "dev_perplexity"), 2),
        count(system.longest_trained),
        count(system.tokens_per_second),
    ]


def _signs(report: Report, test: ScoredTest) -> str:
    """Length ratio, signs of under-translation, perplexity: each that is known of any system."""
    rows = test.filled
    shown: dict[str, Callable[[SystemScores], str]] = {
        "length ratio": lambda cell: number(cell.ratio, 2),
        **{f"{title}, %": partial(_percent, name) for name, title in SIGNS.items()},
        "perplexity of the references": lambda cell: number(cell.perplexity, 2),
    }
    lines = []
    for title, written in shown.items():
        named = [
            NamedLine(f"  {report.systems[s].label}", [written(row.cells[s]) for row in rows])
            for s in range(len(report.systems))
        ]
        if all(cell == EMPTY for line in named for cell in line.cells):
            continue
        lines += [NamedLine(title, [""] * len(rows)), *named]
        if title.startswith(SIGNS["repeated"]):
            references = [percent(reference_sign(row)) for row in rows]
            lines.append(NamedLine("  (the references)", references))
    tables = "\n\n".join(blocks([*heading(rows), *lines])) if lines else ""
    return f"Under-translation, {test.name}\n{tables}" if lines else ""


def _places(report: Report, test: ScoredTest) -> str:
    """What arrived of each part of joined lines, by its place."""
    if not test.places:
        return ""
    lines = []
    for name, title in OF_PARTS.items():
        lines.append(NamedLine(f"{title}, %", [""] * len(test.places)))
        for s, system in enumerate(report.systems):
            cells = [row.cells[s] for row in test.places]
            shares = [percent(of_part(cell, name)) for cell in cells]
            lines.append(NamedLine(f"  {system.label}", shares))
            if name == "arrived":
                bounds = [share_interval(cell.arrived) for cell in cells]
                lines.append(NamedLine("    95%", bounds, optional=True))
    tables = blocks([*heading(test.places), *lines])
    return "\n".join([f"Parts of joined lines by place, {test.name}", "\n\n".join(tables)])


def _losses(report: Report, test: ScoredTest) -> str:
    """The parts of what is lost beyond the trained length."""
    if not any(test.losses):
        return ""
    lines = [NamedLine("", ["n", *OF_LOSSES.values()])]
    for system, parts in zip(report.systems, test.losses, strict=True):
        shares = [share(getattr(parts, name, None)) for name in OF_LOSSES]
        pairs = f"{count(parts.pairs)}{' few' if parts.few else ''}" if parts else EMPTY
        lines.append(NamedLine(system.label, [pairs, *shares]))
    return "\n".join([f"Lost beyond the trained length, {test.name}, %", *aligned_table(lines)])


def _percent(name: str, cell: SystemScores) -> str:
    return percent(sign(cell, name))
