"""A ranking as a table for a terminal, and as Markdown for a page of documentation."""

from collections.abc import Sequence

from nmt.compare.notation import beyond, count, interval, marks_of, number
from nmt.compare.ranking import EXACT, Ranking
from nmt.compare.report import FEW, ComparedSystem, SystemScores
from nmt.compare.text.columns import beside, padded


def ranking(ranked: Ranking) -> str:
    """The table for a terminal, then how to read it."""
    names, *columns = zip(*_lines(ranked), strict=True)
    table = beside([padded(names), *(padded(column, right=True) for column in columns)], "  ")
    return "\n".join([*table, "", *_notes(ranked)]) + "\n"


def markdown(ranked: Ranking) -> str:
    """The same for a page of documentation: what was typed and when, the table, the notes."""
    heading, *lines = (
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in _lines(ranked)
    )
    rule = "|" + "|".join([":--", *["--:"] * (len(_lines(ranked)[0]) - 1)]) + "|"
    opening = f"{ranked.report.date}: `{ranked.report.command}`"
    notes = [f"- {note}" for note in _notes(ranked)]
    return "\n".join([opening, "", heading, rule, *lines, "", *notes]) + "\n"


def _lines(ranked: Ranking) -> list[list[str]]:
    """The heading, and a line for each system, best first."""
    rows, longest, metric = ranked.rows, ranked.longest, ranked.metric
    names = [known.name for known in ranked.test.metrics]
    exact = EXACT in names and metric != EXACT  # a column of its own where another has the buckets
    heading = ["encoding", "its parameters", "all parameters", "tokens/s"]
    heading += [f"{metric} {row.name}" for row in rows]
    heading += ["exact match %"] if exact else []
    heading.append(f"length ratio {longest.name}")
    lines = [heading]
    for s in ranked.order:
        system = ranked.report.systems[s]
        line = [system.label, count(system.encoding_parameters), count(system.parameters)]
        line.append(count(system.runs[0].tokens_per_second))
        line += [_score(row.cells[s], metric) for row in rows]
        line += [number(rows[-1].cells[s].scores[EXACT].mean)] if exact else []
        line.append(number(longest.cells[s].ratio, 2))
        lines.append(line)
    return lines


def _score(cell: SystemScores, metric: str) -> str:
    score = cell.scores[metric]
    return f"{number(score.mean)} {interval(score)}{beyond(cell)}"


def _notes(ranked: Ranking) -> list[str]:
    """How the numbers came about and what the marks mean, as far as they occur."""
    report, rows, metric = ranked.report, ranked.rows, ranked.metric
    marks = marks_of(rows)
    pairs = ", ".join(f"{row.name}: {count(row.pairs)}" for row in rows)
    notes = [f"Sorted by {metric} of {ranked.longest.name}, best first. Pairs: {pairs}."]
    notes += [f"Lengths are counted in {ranked.test.unit}."] if ranked.test.unit else []
    notes += [*report.notes, _budgets(report.systems)]
    notes.append(
        f"[low, high]: 95% interval, bootstrap of {report.samples} samples of the pairs; "
        "it says nothing of other seeds of training."
    )
    if marks.beyond:
        notes.append("^: every source is longer than any this system was trained on.")
    if marks.few:
        few = ", ".join(row.name for row in rows if row.few)
        notes.append(f"Under {FEW} pairs, take it as a hint: {few}.")
    notes.append(f"{metric}: {ranked.test.metric(metric).signature}")
    for missing in ranked.missing:
        where = f"; see {missing.log}" if missing.log else ""
        notes.append(f"Not in the table: {missing.label}: {missing.why}{where}")
    return notes


def _budgets(systems: Sequence[ComparedSystem]) -> str:
    """The updates of all, and a warning if some had more than others."""
    steps = {system.label: count(system.runs[0].step) for system in systems}
    if len(set(steps.values())) == 1:
        return f"Every model made {next(iter(steps.values()))} updates."
    return "THE BUDGETS DIFFER, in updates: " + ", ".join(f"{a} {b}" for a, b in steps.items())
