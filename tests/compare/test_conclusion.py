"""A finding says what the numbers say, and leaves open what they leave open."""

import html
import re
from collections.abc import Mapping
from dataclasses import replace

from nmt.compare.notation import seeds_note
from nmt.compare.page import environment
from nmt.compare.report import (
    BucketScores,
    ComparedSystem,
    Score,
    ScoredTest,
    SystemScores,
    trained_run,
)
from tests.compare.made_up_report import METRICS, empty
from tests.compare.made_up_report import whole as study


def compared(
    scores: Mapping[int, tuple[float, float, float, float | None]],
    beyond: bool = True,
    seeds: tuple[float, ...] = (0.0,),
    few: bool = False,
    metric: int = 0,
    longest: int | None = 50,
    steps: tuple[int, ...] = (),
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
    runs = [[trained_run(f"run{step}", 1, step, [])] for step in steps]
    systems = [
        ComparedSystem(label, longest, 1, 0, of)
        for label, of in zip(LABELS, runs or [[]] * 3, strict=True)
    ]
    made = replace(empty(), systems=systems, tests=[test])
    page = environment().get_template("summary.html").render(report=made)
    return " ".join(html.unescape(re.sub("<[^>]+>", "", page)).split())


LABELS = ("base", "mid", "new")
APART = {0: (20.0, 18.0, 22.0, None), 1: (21.0, 19.0, 23.0, 0.3), 2: (30.0, 28.0, 32.0, 0.0)}


def test_the_best_is_compared_with_the_baseline() -> None:
    said = compared(APART)
    assert "length over 50 (400 pairs), longer than any source in training, new has the" in said
    assert "highest BLEU, 30.0, against 20.0 of base (p < 0.001)." in said
    assert "By the paired test (p < 0.05), new differs from base." in said
    said = compared({**APART, 2: (30.0, 28.0, 32.0, None)}, few=True)
    assert "(not tested)." in said and "Few pairs: not reliable." in said
    assert "The paired test tells no system from base." in said
    untested = {s: (*scores[:3], None) for s, scores in APART.items()}
    said = compared(untested, few=True)
    assert "There are too few pairs for a paired test." in said and "tells no" not in said


def test_those_that_look_equal_are_best_together() -> None:
    said = compared({**APART, 1: (30.04, 28.0, 32.0, 0.01)})
    assert "mid and new have the highest BLEU, 30.0, against 20.0 of base." in said
    said = compared({**APART, 0: (30.0, 28.0, 32.0, None)})
    assert "base and new have the highest BLEU, 30.0." in said


def test_other_numbers_of_updates_are_said() -> None:
    said = compared(APART, steps=(640, 640, 320))
    assert "Warning: systems were trained for different numbers of updates: base 640," in said


def test_lower_is_better_for_ter() -> None:
    said = compared(APART, metric=1)
    assert "base has the lowest TER, 20.0." in said and "new differs from base" in said


def test_a_table_decides_on_the_metric() -> None:
    made = study()
    table = replace(made.tables[1], metrics=["TER", "BLEU"])
    page = environment().get_template("summary.html").render(report=replace(made, tables=[table]))
    assert "has the lowest TER" in page and "has the highest BLEU" in page  # of the other test


def test_what_is_not_known_is_not_said() -> None:
    said = compared(APART, beyond=False, longest=None)
    assert "On all pairs of news, new has the" in said and "seed" not in said.split("Tested")[0]


def test_all_pairs_where_nothing_is_beyond_the_training() -> None:
    assert "No bucket of news is longer than the training; on all its pairs" in compared(
        APART, beyond=False
    )


def test_systems_without_seeds_beside_others() -> None:
    """An average, an ensemble or a text is no run."""
    made = study()
    for counts, said in (
        ([3, 3, 3, 3, 3], "5 systems compared, 3 seeds each:"),
        ([3, 0, 1, 0, 0], "5 systems compared, 2 of them with 1 to 3 seeds each:"),
        ([2, 0, 0, 0, 0], "5 systems compared, 1 of them with 2 seeds:"),
    ):
        systems = [replace(s, runs=s.runs[:n]) for s, n in zip(made.systems, counts, strict=True)]
        report = replace(made, systems=systems)
        page = environment().get_template("summary.html").render(report=report)
        assert said in page
        fixed = "that of systems without several seeds held fixed"
        assert (fixed in page) == (fixed in seeds_note(report)) == (min(counts) < 2)


def test_one_system_and_none() -> None:
    assert "nothing to compare" in compared({0: APART[0]})
    assert "has no scores" in compared({})
