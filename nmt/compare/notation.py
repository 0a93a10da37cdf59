"""How numbers and marks are written, in text and on the page, and which marks a table needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from nmt.compare.report import (
    BucketScores,
    ComparedSystem,
    PartShares,
    Report,
    Score,
    Share,
    SystemScores,
)

STAR, BEYOND, EMPTY = "*", "^", "-"  # significant; beyond the trained length; no such number

SIGNS = {  # of under-translation, each a share
    "repeated": "repeated 4-grams",
    "unattended": "source never attended",
    "dropped_half": "second half dropped",
}
OF_PARTS = {  # of joined lines, each a share
    "arrived": "6-grams that arrived",
    "omitted": "lines in which it was left out",
    "repeated": "6-grams too many",
}
OF_LOSSES = {  # the parts of what is lost beyond the trained length, each a share
    "within": "lost within",
    "beyond": "lost beyond",
    "end": "end sign",
    "place": "place",
    "content": "content",
}
REPEATED_IN_REFERENCES = f"{SIGNS['repeated']} of the references"


def number(value: float | None, digits: int = 1) -> str:
    """`31.7`."""
    return EMPTY if value is None else f"{value:.{digits}f}"


def count(value: float | None) -> str:
    """`28,075`."""
    return EMPTY if value is None else f"{value:,.0f}"


def deviating(mean: float | None, deviation: float | None, digits: int = 1) -> str:
    """`56.7 ± 0.4`, without a deviation where there is none."""
    written = number(mean, digits)
    return written if deviation is None else f"{written} ± {number(deviation, digits)}"


def interval(score: Score | None) -> str:
    """`[30.9, 32.4]`."""
    return EMPTY if score is None else f"[{score.low:.1f}, {score.high:.1f}]"


def ranks(score: Score) -> str:
    """The best and the worst rank, `2-4`, or the only one."""
    return EMPTY if score.ranks is None else "-".join(map(str, sorted({*score.ranks})))


def percent(share: float | None) -> str:
    """A share of 1 in percent, as `3.4`."""
    return EMPTY if share is None else f"{100 * share:.1f}"


def share(value: Share | None) -> str:
    """`3.4 [2.9, 4.1]`, in percent."""
    return EMPTY if value is None else f"{percent(value.mean)} {share_interval(value)}"


def share_interval(value: Share | None) -> str:
    """`[2.9, 4.1]`, in percent."""
    return EMPTY if value is None else f"[{percent(value.low)}, {percent(value.high)}]"


def p_value(p: float | None) -> str:
    """`0.017`, or `<.001`."""
    return "<.001" if p is not None and p < 0.001 else number(p, 3)


def star(score: Score | None) -> str:
    """The mark of a difference that the paired test finds."""
    return STAR if score is not None and score.significant else ""


def beyond(cell: SystemScores) -> str:
    """The mark of a score on sources beyond the trained length."""
    return BEYOND if cell.beyond and cell.scores else ""


def sign(cell: SystemScores, name: str) -> float | None:
    """A sign of under-translation, a share; None where it is not known."""
    return None if cell.signs is None else getattr(cell.signs, name)


def of_part(cell: PartShares, name: str) -> float | None:
    """A share of a part of joined lines; None where it is not known."""
    value = getattr(cell, name)
    return value.mean if isinstance(value, Share) else value


def further_figures(cell: SystemScores) -> dict[str, float | None]:
    """Length ratio, signs of under-translation (shares) and perplexity, by their names."""
    known = {"length ratio": cell.ratio, "perplexity of the references": cell.perplexity}
    for name, title in SIGNS.items():
        known[title] = sign(cell, name)
        if name == "repeated":
            known[REPEATED_IN_REFERENCES] = sign(cell, "repeated_reference")
    return known


def reference_sign(row: BucketScores) -> float | None:
    """The references' own share of repeated 4-grams, which all systems share."""
    values = (sign(cell, "repeated_reference") for cell in row.cells)
    return next((value for value in values if value is not None), None)


def over_runs(system: ComparedSystem, name: str) -> tuple[float | None, float | None]:
    """Mean and deviation of a figure of `TrainedRun` over the runs that know it.

    No deviation of one run, and neither of none.
    """
    known = [value for run in system.runs if (value := getattr(run, name)) is not None]
    return fmean(known) if known else None, stdev(known) if len(known) > 1 else None


@dataclass(frozen=True)
class Marks:
    """Marks of a table that a note must explain."""

    few: bool
    beyond: bool
    tested: bool
    significant: bool
    deviations: bool
    published: bool


def marks_of(
    rows: Iterable[BucketScores],
    systems: Sequence[int] | None = None,
    metrics: Sequence[str] | None = None,
) -> Marks:
    """The marks in some rows, of all systems and metrics or of some."""
    rows = list(rows)
    cells = [
        cell for row in rows for s, cell in enumerate(row.cells) if systems is None or s in systems
    ]
    scores = [
        score
        for cell in cells
        for name, score in cell.scores.items()
        if metrics is None or name in metrics
    ]
    return Marks(
        few=any(row.few for row in rows),
        beyond=any(map(beyond, cells)),
        tested=any(score.p is not None for score in scores),
        significant=any(score.significant for score in scores),
        deviations=any(score.deviation is not None for score in scores),
        published=any(score.published is not None for score in scores),
    )


def seeds_note(report: Report) -> str:
    """What the intervals say of seeds of training."""
    runs = [len(system.runs) for system in report.systems]
    degrees = sum(max(0, count - 1) for count in runs)
    if not degrees:
        return "seeds of training are held fixed"
    apart = ", that of systems without several seeds held fixed" if min(runs) < 2 else ""
    of = "degree" if degrees == 1 else "degrees"
    return f"and over seeds, by their pooled deviation with {degrees} {of} of freedom{apart}"
