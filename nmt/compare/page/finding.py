"""What the numbers say in a sentence or two, and no more than they say."""

from dataclasses import dataclass
from typing import NamedTuple

from nmt.compare.page.markup import Child, bdi, listed, tag
from nmt.compare.page.numbers import chance, fixed, significant, spread
from nmt.compare.report import ALL, SIGNIFICANT, BucketScores, Metric, Report, Score, ScoredTest


@dataclass(frozen=True)
class Place:
    """The bucket that a finding is about."""

    row: BucketScores
    beyond: str  # `all`, `some` or `none` of the systems: it is longer than their training


def place(test: ScoredTest) -> Place | None:
    """The longest bucket beyond the trained lengths that has enough pairs; else all pairs.

    None where nothing was scored at all.
    """
    metric = test.metrics[0].name
    buckets = [row for row in test.rows if row.name != ALL and _scored(row, metric)]
    for beyond, enough in (("all", all), ("some", any)):
        rows = [r for r in buckets if enough(r.cells[s].beyond for s in _scored(r, metric))]
        if rows:
            return Place(next((r for r in reversed(rows) if not r.few), rows[-1]), beyond)
    whole = [row for row in test.rows if row.name == ALL and _scored(row, metric)]
    return Place(whole[0], "none") if whole else None


def _scored(row: BucketScores, metric: str) -> dict[int, Score]:
    """The systems' scores, of those that have one."""
    return {s: cell.scores[metric] for s, cell in enumerate(row.cells) if metric in cell.scores}


class Finding(NamedTuple):
    """One sentence, and how far it can be trusted."""

    said: list[Child]
    trust: list[Child]


def finding(report: Report, test: ScoredTest) -> Finding:
    """Who is best beyond the trained lengths, by how much, and whether the statistics agree."""
    chosen = place(test)
    if chosen is None:
        return Finding([bdi(test.name), " has no scores."], [])
    metric, row = test.metrics[0], chosen.row
    scores = _scored(row, metric.name)
    if len(scores) < 2:
        alone = " was translated by one system: there is nothing to compare."
        return Finding([bdi(test.name), alone], [])
    sign = 1 if metric.higher_is_better else -1
    best = max(scores, key=lambda s: sign * scores[s].mean)
    where = _where(report, test, chosen, scores)
    extreme = "highest" if metric.higher_is_better else "lowest"
    name = tag("strong", bdi(report.systems[best].label))
    said: list[Child] = [*where, name, f" has the {extreme} {metric.name}, {spread(scores[best])}"]
    if best != 0 and 0 in scores:
        said += [f", against {spread(scores[0])} of ", bdi(report.systems[0].label)]
    trust = _first(report, scores) if best == 0 else _ahead(report, metric, scores, best)
    hint = ["Few pairs: take it as a hint. "] if row.few else []
    return Finding([*said, "."], [*hint, *trust])


def _where(
    report: Report, test: ScoredTest, chosen: Place, scores: dict[int, Score]
) -> list[Child]:
    name, row = bdi(test.name), chosen.row
    if chosen.beyond == "none":
        if test.unit is None:
            return ["On all pairs of ", name, ", "]
        return ["No bucket of ", name, " is longer than the training; on all its pairs, "]
    bucket: list[Child] = ["On ", name, ", length ", bdi(row.name), f" ({row.pairs:,} pairs), "]
    if chosen.beyond == "all":
        return [*bucket, "longer than any source in training, "]
    known = [bdi(report.systems[s].label) for s in scores if row.cells[s].beyond]
    return [*bucket, "longer than any source in the training of ", *listed(known), ", "]


def _interval(score: Score) -> str:
    return f"{fixed(score.low)} to {fixed(score.high)}"


def _meet(a: Score, b: Score) -> bool:
    return a.low <= b.high and b.low <= a.high


def _first(report: Report, scores: dict[int, Score]) -> list[Child]:
    """The baseline is the best: whom the paired test tells from it."""
    others = [s for s in scores if s != 0]
    apart = [bdi(report.systems[s].label) for s in others if significant(scores[s])]
    open_ = [bdi(report.systems[s].label) for s in others if not significant(scores[s])]
    if all(scores[s].p is None for s in others):
        return ["No paired test was made."]
    if not open_:
        return [f"The paired test tells all others from it (p < {SIGNIFICANT})."]
    if not apart:
        return ["The paired test tells no other system from it."]
    told: list[Child] = ["The paired test tells it from ", *listed(apart)]
    return [*told, f" (p < {SIGNIFICANT}), but not from ", *listed(open_), "."]


def _ahead(report: Report, metric: Metric, scores: dict[int, Score], best: int) -> list[Child]:
    """Another than the baseline is the best: against it, and against those in between."""
    score = scores[best]
    said: list[Child] = []
    if 0 in scores:
        base = scores[0]
        said = [f"95\u00a0% intervals: {_interval(score)} against {_interval(base)}; "]
        said += [f"{_agreement(score, base)}."]
        said += _seeds(score, base, metric.higher_is_better)
    near = [s for s in scores if s not in (0, best) and _meet(scores[s], score)]
    if near:
        names = listed(bdi(report.systems[s].label) for s in near)
        verb = "interval of" if len(near) == 1 else "intervals of"
        said += [f" The {verb} ", *names, " and its own overlap, so that which of them is best "]
        said += ["stays open."]
    elif any(s not in (0, best) for s in scores):
        said += [" Its interval lies clear of those of the others."]
    return said


def _agreement(score: Score, base: Score) -> str:
    """What intervals and paired test say of the two, and whether they say the same."""
    meet = "the intervals overlap" if _meet(score, base) else "the intervals do not overlap"
    if score.p is None:
        return f"{meet}; no paired test was made"
    told = chance(score.p)
    if significant(score):
        if _meet(score, base):
            return f"{meet}, but the paired test, the sharper one, finds a difference ({told})"
        return f"{meet}, and the paired test agrees ({told})"
    if _meet(score, base):
        return f"{meet}, and the paired test finds no difference either ({told})"
    return f"{meet}, yet the paired test finds no difference ({told}): take it with care"


def _seeds(score: Score, base: Score, higher: bool) -> list[Child]:
    """Intervals hold the seeds fixed; these words say what the seeds add."""
    if min(len(score.seeds), len(base.seeds)) < 2:
        return [" With one seed, nothing is known of the spread over seeds."]
    above = min(score.seeds) > max(base.seeds) if higher else max(score.seeds) < min(base.seeds)
    if above:
        return [" Every one of its seeds is better than every one of the other's."]
    return [" Their ranges over seeds overlap."]
