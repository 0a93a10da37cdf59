"""A finding says what the numbers say, and leaves open what they leave open."""

import html
import re
from dataclasses import replace

from nmt.compare.page import environment
from nmt.compare.report import BucketScores, ComparedSystem, Score, ScoredTest, SystemScores
from tests.compare.made_up_report import METRICS, empty


def compared(
    scores: dict[int, tuple[float, float, float, float | None]],
    beyond: bool = True,
    seeds: tuple[float, ...] = (0.0,),
    few: bool = False,
    metric: int = 0,
) -> str:
    """The words of a conclusion; scores by system: mean, low, high, p."""
    cells = []
    for s in range(3):
        if s in scores:
            mean, low, high, p = scores[s]
            each = [mean + d for d in seeds]
            score = {METRICS[metric].name: Score(mean, None, each, low, high, p)}
            cells.append(SystemScores(score, 1.0, beyond))
        else:
            cells.append(SystemScores({}, None, beyond))
    rows = [BucketScores("over 50", 51, None, 400, few, cells)]
    rows.append(BucketScores("all", 0, None, 400, few, [replace(c, beyond=False) for c in cells]))
    test = ScoredTest("news", "", "words", 80, [METRICS[metric]], rows)
    systems = [ComparedSystem(label, 50, 1, 0) for label in ("base", "mid", "new")]
    made = replace(empty(), systems=systems, tests=[test])
    page = environment().get_template("summary.html").render(report=made)
    return " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())


APART = {0: (20.0, 18.0, 22.0, None), 1: (21.0, 19.0, 23.0, 0.3), 2: (30.0, 28.0, 32.0, 0.0)}


def test_a_clear_difference_is_called_one() -> None:
    said = compared(APART)
    assert "length over 50 (400 pairs), longer than any source in training, new has the" in said
    assert "highest BLEU, 30.0, against 20.0 of base." in said
    assert "do not overlap, and the paired test agrees (p < 0.001)" in said
    assert "lies clear of those of the others" in said and "With one seed" in said


def test_what_is_open_is_called_open() -> None:
    near = {**APART, 2: (21.5, 19.0, 23.0, 0.2)}
    said = compared(near)
    assert "overlap, and the paired test finds no difference either (p = 0.200)" in said
    assert "mid and its own overlap, so that which of them is best stays open" in said
    assert "the sharper one, finds a difference (p = 0.010)" in compared(
        {**near, 2: (21.5, 19.0, 23.0, 0.01)}
    )
    assert "take it with care" in compared({**APART, 2: (30.0, 28.0, 32.0, 0.3)})
    assert "no paired test was made" in compared({**APART, 2: (30.0, 28.0, 32.0, None)})
    assert "Few pairs: not reliable." in compared(APART, few=True)


def test_seeds_are_looked_at() -> None:
    assert "Every one of its seeds is better" in compared(APART, seeds=(-4.0, 4.0))
    assert "Their ranges over seeds overlap" in compared(APART, seeds=(-6.0, 6.0))


def test_lower_is_better_for_ter() -> None:
    said = compared(APART, metric=1)
    assert "base has the lowest TER, 20.0." in said
    assert "tells it from new (p < 0.05), but not from mid" in said


def test_a_best_baseline() -> None:
    best = {0: (40.0, 39.0, 41.0, None), 1: (21.0, 19.0, 23.0, 0.0), 2: (30.0, 28.0, 32.0, 0.0)}
    assert "All others differ from it significantly (paired bootstrap, p < 0.05)" in compared(best)
    assert "No other system differs from it significantly" in compared(
        {s: (*v[:3], None if s == 0 else 0.5) for s, v in best.items()}
    )
    assert "No paired test was made" in compared({s: (*v[:3], None) for s, v in best.items()})


def test_all_pairs_where_nothing_is_beyond_the_training() -> None:
    assert "No bucket of news is longer than the training; on all its pairs" in compared(
        APART, beyond=False
    )


def test_one_system_and_none() -> None:
    assert "nothing to compare" in compared({0: APART[0]})
    assert "has no scores" in compared({})
