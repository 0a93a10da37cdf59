"""What the numbers say in a sentence or two, and no more than they say."""

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from nmt.compare.page.text import bdi, chance, fixed, listed, spread
from nmt.compare.report import (
    ALL,
    SIGNIFICANT,
    BucketScores,
    Metric,
    Report,
    Score,
    ScoredTest,
)


class Place(NamedTuple):
    """The bucket that a conclusion is about."""

    row: BucketScores
    beyond: str  # `all`, `some` or `none` of the systems: it is longer than their training


class Conclusion(NamedTuple):
    """One sentence, and how far it can be trusted."""

    statement: Markup
    evidence: Markup


def conclusion(report: Report, test: ScoredTest) -> Conclusion:
    """Who is best beyond the trained lengths, by how much, and whether the statistics agree."""
    chosen = place(test)
    if chosen is None:
        return Conclusion(Markup("{} has no scores.").format(bdi(test.name)), Markup())
    metric, row = test.metrics[0], chosen.row
    scores = _scored(row, metric.name)
    if len(scores) < 2:
        alone = "{} was translated by one system: there is nothing to compare."
        return Conclusion(Markup(alone).format(bdi(test.name)), Markup())
    sign = 1 if metric.higher_is_better else -1
    best = max(scores, key=lambda s: sign * scores[s].mean)
    statement = _where(report, test, chosen, scores) + Markup(
        "<strong>{}</strong> has the {} {}, {}"
    ).format(
        _label(report, best),
        "highest" if metric.higher_is_better else "lowest",
        metric.name,
        spread(scores[best]),
    )
    if best != 0 and 0 in scores:
        statement += Markup(", against {} of {}").format(spread(scores[0]), _label(report, 0))
    hint = "Few pairs: take it as a hint. " if row.few else ""
    evidence = _first(report, scores) if best == 0 else _ahead(report, metric, scores, best)
    return Conclusion(statement + ".", Markup(hint) + evidence)


def place(test: ScoredTest) -> Place | None:
    """The longest bucket beyond the trained lengths that has enough pairs; else all pairs.

    None where nothing was scored at all.
    """
    metric = test.metrics[0].name
    buckets = [row for row in test.buckets if _scored(row, metric)]
    for beyond, enough in (("all", all), ("some", any)):
        rows = [r for r in buckets if enough(r.cells[s].beyond for s in _scored(r, metric))]
        if rows:
            return Place(next((r for r in reversed(rows) if not r.few), rows[-1]), beyond)
    whole = [row for row in test.rows if row.name == ALL and _scored(row, metric)]
    return Place(whole[0], "none") if whole else None


def _scored(row: BucketScores, metric: str) -> dict[int, Score]:
    """The systems' scores, of those that have one."""
    return {s: cell.scores[metric] for s, cell in enumerate(row.cells) if metric in cell.scores}


def _label(report: Report, system: int) -> Markup:
    return bdi(report.systems[system].label)


def _labels(report: Report, systems: Iterable[int]) -> Markup:
    return listed(_label(report, s) for s in systems)


def _where(report: Report, test: ScoredTest, chosen: Place, scores: dict[int, Score]) -> Markup:
    name, row = bdi(test.name), chosen.row
    if chosen.beyond == "none":
        if test.unit is None:
            return Markup("On all pairs of {}, ").format(name)
        told = "No bucket of {} is longer than the training; on all its pairs, "
        return Markup(told).format(name)
    pairs = f"{row.pairs:,}"
    bucket = Markup("On {}, length {} ({} pairs), ").format(name, bdi(row.name), pairs)
    if chosen.beyond == "all":
        return bucket + "longer than any source in training, "
    known = _labels(report, (s for s in scores if row.cells[s].beyond))
    return bucket + Markup("longer than any source in the training of {}, ").format(known)


def _first(report: Report, scores: dict[int, Score]) -> Markup:
    """The baseline is the best: whom the paired test tells from it."""
    others = [s for s in scores if s != 0]
    apart = [s for s in others if scores[s].significant]
    same = [s for s in others if not scores[s].significant]
    if all(scores[s].p is None for s in others):
        return Markup("No paired test was made.")
    if not same:
        return Markup("The paired test tells all others from it (p &lt; {}).").format(SIGNIFICANT)
    if not apart:
        return Markup("The paired test tells no other system from it.")
    told = "The paired test tells it from {} (p &lt; {}), but not from {}."
    return Markup(told).format(_labels(report, apart), SIGNIFICANT, _labels(report, same))


def _ahead(report: Report, metric: Metric, scores: dict[int, Score], best: int) -> Markup:
    """Another than the baseline is the best: against it, and against those in between."""
    score = scores[best]
    evidence = Markup()
    if 0 in scores:
        base = scores[0]
        evidence += f"95\u00a0% intervals: {_interval(score)} against {_interval(base)}; "
        evidence += f"{_agreement(score, base)}."
        evidence += _seeds(score, base, metric.higher_is_better)
    near = [s for s in scores if s not in (0, best) and _meet(scores[s], score)]
    if near:
        evidence += Markup(
            " The {} {} and its own overlap, so that which of them is best stays open."
        ).format("interval of" if len(near) == 1 else "intervals of", _labels(report, near))
    elif any(s not in (0, best) for s in scores):
        evidence += " Its interval lies clear of those of the others."
    return evidence


def _interval(score: Score) -> str:
    return f"{fixed(score.low)} to {fixed(score.high)}"


def _meet(a: Score, b: Score) -> bool:
    return a.low <= b.high and b.low <= a.high


def _agreement(score: Score, base: Score) -> str:
    """What intervals and paired test say of the two, and whether they say the same."""
    meet = "the intervals overlap" if _meet(score, base) else "the intervals do not overlap"
    if score.p is None:
        return f"{meet}; no paired test was made"
    told = chance(score.p)
    if score.significant:
        if _meet(score, base):
            return f"{meet}, but the paired test, the sharper one, finds a difference ({told})"
        return f"{meet}, and the paired test agrees ({told})"
    if _meet(score, base):
        return f"{meet}, and the paired test finds no difference either ({told})"
    return f"{meet}, yet the paired test finds no difference ({told}): take it with care"


def _seeds(score: Score, base: Score, higher: bool) -> str:
    """Intervals hold the seeds fixed; these words say what the seeds add."""
    if min(len(score.seeds), len(base.seeds)) < 2:
        return " With one seed, nothing is known of the spread over seeds."
    above = min(score.seeds) > max(base.seeds) if higher else max(score.seeds) < min(base.seeds)
    if above:
        return " Every one of its seeds is better than every one of the other's."
    return " Their ranges over seeds overlap."
