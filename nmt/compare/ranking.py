"""Many systems in one table, best on the longest sources first; as text, Markdown and JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.compare.report import ALL, FEW, Cell, Report, Row

FORMAT = 1  # of the JSON file
EXACT = "exact"  # a column of its own where another metric has the buckets
UNKNOWN = "-"


@dataclass(frozen=True)
class Entry:
    """What is known of one system beside its scores."""

    label: str
    run: str  # directory of the model
    encoding_parameters: int  # of the model, less those of the same model without encoding
    parameters: int  # of the whole model
    tokens_per_second: float | None  # in training; None: too short to have been reported
    seconds: float | None  # spent in updates
    step: int  # updates made
    dev_perplexity: float | None  # the best


@dataclass(frozen=True)
class Missing:
    """A system that is not in the table, and why."""

    label: str
    why: str
    log: str | None  # None: it was never started


@dataclass(frozen=True)
class Ranking:
    """A report of many systems with what is known of each."""

    report: Report
    entries: list[Entry]  # in the order of the report's systems
    missing: list[Missing]
    metric: str  # one of the report's; decides the order
    date: str  # YYYY-MM-DD
    command: str  # what was typed
    caption: list[str]  # sentences on budget and search

    @property
    def rows(self) -> list[Row]:
        """The buckets that hold pairs, then all pairs."""
        return [row for row in self.report.rows if row.pairs or row.name == ALL]

    @property
    def longest(self) -> Row:
        """The bucket of the longest sources; all pairs, where there are no buckets."""
        rows = self.rows
        return rows[-2] if len(rows) > 1 else rows[-1]

    @property
    def higher_is_better(self) -> bool:
        """Whether more of the metric is better."""
        return next(m.higher_is_better for m in self.report.metrics if m.name == self.metric)

    @property
    def order(self) -> list[int]:
        """Indices of the systems, best in the longest bucket first, then best on all pairs."""
        sign = -1 if self.higher_is_better else 1

        def key(s: int) -> tuple[float, float]:
            long, every = (
                row.cells[s].scores[self.metric] for row in (self.longest, self.rows[-1])
            )
            return sign * long.score, sign * every.score

        return sorted(range(len(self.entries)), key=key)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; `systems` are sorted as the table is."""
        return {
            "format": FORMAT,
            "date": self.date,
            "command": self.command,
            "metric": self.metric,
            "caption": self.caption,
            "systems": [asdict(self.entries[s]) for s in self.order],
            "missing": [asdict(each) for each in self.missing],
            "report": self.report.to_json(),
        }


def text(ranking: Ranking) -> str:
    """The table for a terminal, then how to read it."""
    heading, lines = _cells(ranking)
    table = [heading, *lines]
    wide = [max(len(line[c]) for line in table) for c in range(len(heading))]
    padded = [
        "  ".join(
            w.ljust(n) if c == 0 else w.rjust(n)
            for c, (w, n) in enumerate(zip(line, wide, strict=True))
        )
        for line in table
    ]
    return "\n".join([*padded, "", *_notes(ranking)]) + "\n"


def markdown(ranking: Ranking) -> str:
    """The same for a page of documentation: what was typed and when, the table, the notes."""
    heading, lines = _cells(ranking)
    rule = [":--", *["--:"] * (len(heading) - 1)]
    table = ["| " + " | ".join(_escaped(w) for w in line) + " |" for line in (heading, *lines)]
    table.insert(1, "|" + "|".join(rule) + "|")
    notes = [f"- {note}" for note in _notes(ranking)]
    return "\n".join([f"{ranking.date}: `{ranking.command}`", "", *table, "", *notes]) + "\n"


def _escaped(word: str) -> str:
    return word.replace("|", "\\|")


def _cells(ranking: Ranking) -> tuple[list[str], list[list[str]]]:
    """The heading, and a line for each system, best first."""
    rows, longest, metric = ranking.rows, ranking.longest, ranking.metric
    exact = any(m.name == EXACT for m in ranking.report.metrics) and metric != EXACT
    heading = ["encoding", "its parameters", "all parameters", "tokens/s"]
    heading += [f"{metric} {row.name}" for row in rows]
    heading += ["exact match %"] if exact else []
    heading.append(f"length ratio {longest.name}")
    lines = []
    for s in ranking.order:
        entry = ranking.entries[s]
        speed = entry.tokens_per_second
        line = [entry.label, f"{entry.encoding_parameters:,}", f"{entry.parameters:,}"]
        line.append(UNKNOWN if speed is None else f"{speed:,.0f}")
        line += [_score(row.cells[s], metric) for row in rows]
        line += [f"{rows[-1].cells[s].scores[EXACT].score:.1f}"] if exact else []
        ratio = longest.cells[s].ratio
        line.append(UNKNOWN if ratio is None else f"{ratio:.2f}")
        lines.append(line)
    return heading, lines


def _score(cell: Cell, metric: str) -> str:
    e = cell.scores[metric]
    return f"{e.score:.1f} [{e.low:.1f}, {e.high:.1f}]{'^' if cell.unseen else ''}"


def _notes(ranking: Ranking) -> list[str]:
    """How the numbers came about and what the marks mean, as far as they occur."""
    report, rows, metric = ranking.report, ranking.rows, ranking.metric
    counts = ", ".join(f"{row.name}: {row.pairs:,}" for row in rows)
    signature = next(m.signature for m in report.metrics if m.name == metric)
    notes = [f"Sorted by {metric} of {ranking.longest.name}, best first. Pairs: {counts}."]
    notes += [f"Lengths are counted in {report.unit}."] if report.unit else []
    notes += ranking.caption
    notes += _budgets(ranking.entries)
    notes.append(
        f"[low, high]: 95% interval, bootstrap of {report.samples} samples of the pairs; "
        "it says nothing of other seeds of training."
    )
    if any(cell.unseen for row in rows for cell in row.cells):
        notes.append("^: every source is longer than any this system was trained on.")
    if few := [row.name for row in rows if row.few]:
        notes.append(f"Under {FEW} pairs, take it as a hint: {', '.join(few)}.")
    notes.append(f"{metric}: {signature}")
    for each in ranking.missing:
        where = f"; see {each.log}" if each.log else ""
        notes.append(f"Not in the table: {each.label}: {each.why}{where}")
    return notes


def _budgets(entries: Sequence[Entry]) -> list[str]:
    """The updates of all, and a warning if some had more than others."""
    steps = {entry.step for entry in entries}
    if len(steps) == 1:
        return [f"Every model made {steps.pop():,} updates."]
    told = ", ".join(f"{entry.label} {entry.step:,}" for entry in entries)
    return [f"THE BUDGETS DIFFER, in updates: {told}."]
