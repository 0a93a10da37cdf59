"""One row for each system, in the right order, in words, Markdown, JSON and colour."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nmt.compare import text
from nmt.compare.report import ComparedSystem, LearningCurve, Report, TrainedRun
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.text.notes import notes_of
from nmt.compare.text.ranking import longest_of, order_of
from tests.compare.made_up import lengths, noisy, references, score

pytestmark = pytest.mark.usefixtures("each_run_counted_once")
RIGHT = references(130)
RIGHT += [line for line in RIGHT if len(line.split()) > 35] * 3  # 36: enough for a test
LENGTHS = lengths(RIGHT)
WRONG = {"bad": 0.6, "good": 0.05, "middle": 0.3, "tie": 0.3}
SEEDS = {"bad": 1, "good": 2, "middle": 3, "tie": 3}


def system(label: str, **changes: Any) -> ComparedSystem:
    values: dict[str, Any] = {
        "run": f"runs/{label}", "seed": 1, "step": 640, "seconds": 60.0,
        "tokens_per_second": 9876.4, "dev_perplexity": 1.3,
        "curve": LearningCurve([], [], [], [], []),
    }  # fmt: skip
    return ComparedSystem(label, 35, 1234567, 2112, [TrainedRun(**{**values, **changes})])


def ranked(
    hypotheses: dict[str, list[str]], metric: str, bounds: Sequence[int], **changes: Any
) -> Report:
    names = list(dict.fromkeys([metric, "BLEU", "exact"]))
    test = TranslatedTest(
        RIGHT,
        [[lines] for lines in hypotheses.values()],
        lengths=LENGTHS,
        unit="words",
        longest_trained=[35] * len(hypotheses),
        metrics=names,
    )
    values: dict[str, Any] = {
        "systems": [system(name) for name in hypotheses], "date": "2026-11-21",
        "command": "nmt-evaluate runs/* --rank", "notes": ["Greedy search."],
    }  # fmt: skip
    scored = score(test, Bootstrap(bounds, 50, 1))
    return Report(tests=[scored], samples=50, seed=1, **(values | changes))


def made(metric: str = "BLEU", bounds: Sequence[int] = (20, 35, 60), **changes: Any) -> Report:
    hypotheses = {name: noisy(RIGHT, WRONG[name], SEEDS[name]) for name in WRONG}
    return ranked(hypotheses, metric, bounds, **changes)


def labels(report: Report) -> list[str]:
    return [report.systems[s].label for s in order_of(report.tests[0])]


@pytest.fixture(scope="module")
def four() -> Report:
    return made()


def test_empty_buckets_are_left_out_and_the_longest_decides(four: Report) -> None:
    assert [row.name for row in four.tests[0].filled] == ["0-20", "21-35", "36-60", "all"]
    assert four.tests[0].rows[3].pairs == 0
    assert longest_of(four.tests[0]).name == "36-60"
    assert labels(four) == ["good", "middle", "tie", "bad"]


def test_the_order_is_that_of_the_longest_bucket_not_of_all_pairs() -> None:
    """A system that is right on short sources alone comes last."""
    short = [r if n <= 35 else "wrong" for r, n in zip(RIGHT, LENGTHS, strict=True)]
    one = ranked({"short": short, "bad": noisy(RIGHT, 0.6)}, "BLEU", [20, 35])
    whole = [cell.scores["BLEU"].mean for cell in one.tests[0].rows[-1].cells]
    assert whole[0] > whole[1]
    assert labels(one) == ["bad", "short"]


def test_lower_is_better_turns_the_order_round() -> None:
    one = made("TER")
    assert labels(one) == ["good", "middle", "tie", "bad"]
    (test,) = one.tests
    scores = [longest_of(test).cells[s].scores["TER"].mean for s in order_of(test)]
    assert scores == sorted(scores)


def test_the_text_shows_the_report_s_numbers(four: Report) -> None:
    lines = text.ranking(four).split("\n")
    heading = lines.index("") + 1
    first = re.split(r" {2,}", lines[heading + 1].strip())
    cells = [row.cells[1] for row in four.tests[0].filled]  # of "good"
    expected = [
        f"{c.scores['BLEU'].mean:.1f} [{c.scores['BLEU'].low:.1f}, {c.scores['BLEU'].high:.1f}]"
        + ("*" if (p := c.scores["BLEU"].p) is not None and p < 0.05 else "")
        + ("^" if c.beyond else "")
        for c in cells
    ]
    exact, ratio = cells[-1].scores["exact"].mean, cells[2].ratio
    assert first == [
        "good",
        "1",
        "2,112",
        "1,234,567",
        "9,876",
        *expected,
        f"{cells[2].scores['BLEU'].p:.3f}",
        f"{exact:.1f}",
        f"{ratio:.2f}",
    ]
    assert exact > 0 and cells[2].beyond and not cells[1].beyond
    table = lines[heading : heading + 5]
    assert len({len(line) for line in table}) == 1  # columns stand under their headings
    said = "\n".join(lines)
    assert "sorted by BLEU of 36-60" in said and "Greedy search." in said
    assert "Every model was trained for 640 updates." in said
    assert "longer than any in the system's training" in said


def test_markdown_is_a_dated_table_of_as_many_columns_everywhere(four: Report) -> None:
    lines = text.markdown(four).split("\n")
    assert lines[0] == "2026-11-21: `nmt-evaluate runs/* --rank`"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith("| good | 1 | 2,112 |") and table[3].startswith(
        "| middle | 2 |"
    )  # so has "tie", which is the same
    assert "exact match % all" in table[0]


def test_few_pairs_have_no_ranks(four: Report) -> None:
    short = made(bounds=[20, 38])
    assert longest_of(short.tests[0]).pairs < 30 < longest_of(four.tests[0]).pairs
    assert "rank 36-60" in text.ranking(four) and "rank" not in text.ranking(short)


def test_exact_as_the_metric_has_the_buckets_and_no_second_column() -> None:
    said = text.ranking(made("exact"))
    assert "exact 36-60" in said and "exact match" not in said and "BLEU " not in said


def test_what_is_unequal_or_unknown_is_said() -> None:
    systems = [system(name, step=i, tokens_per_second=None) for i, name in enumerate(WRONG)]
    said = text.ranking(made(systems=systems))
    assert "Warning: systems were trained for different numbers of updates: bad 0, good 1" in said
    assert re.search(r"^good +1 +2,112 +1,234,567 +\d", said, re.M) and "tokens/s" not in said


def test_a_system_that_did_not_translate_has_no_place(four: Report) -> None:
    absent = replace(four.tests[0].filled[0].cells[0], scores={})
    rows = [replace(row, cells=[absent, *row.cells[1:]]) for row in four.tests[0].rows]
    test = replace(four.tests[0], rows=rows)
    assert labels(replace(four, tests=[test])) == ["good", "middle", "tie"]


def test_updates_are_claimed_of_no_system_whose_runs_are_unknown() -> None:
    systems = [system(name) for name in WRONG]
    known = replace(made(systems=systems), systems=[systems[0], replace(systems[1], runs=[])])
    assert f"{systems[0].label}: trained for 640 updates." in notes_of(known)
