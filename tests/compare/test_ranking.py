"""One row for each system, in the right order, in words, Markdown, JSON and colour."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nmt.compare import heatmap, ranking, report
from nmt.compare.ranking import Entry, Missing, Ranking
from nmt.compare.report import Report, System
from nmt.compare.scores import chosen, scorers
from tests.compare.made_up import lengths, noisy, references

RIGHT = references(130)
LENGTHS = lengths(RIGHT)
WRONG = {"bad": 0.6, "good": 0.05, "middle": 0.3, "tie": 0.3}
SEEDS = {"bad": 1, "good": 2, "middle": 3, "tie": 3}


def entry(label: str, **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "label": label, "run": f"runs/{label}", "encoding_parameters": 2112, "parameters": 1234567,
        "tokens_per_second": 9876.4, "seconds": 60.0, "step": 640, "dev_perplexity": 1.3,
    }  # fmt: skip
    return Entry(**{**values, **changes})


def made(metric: str = "BLEU", bounds: tuple[int, ...] = (20, 35, 60), **changes: Any) -> Ranking:
    every = scorers(RIGHT, "en", None, 50, 1)
    names = list(dict.fromkeys([metric, "BLEU", "exact"]))
    found = report.compare(
        [System(name, noisy(RIGHT, WRONG[name], SEEDS[name]), 35) for name in WRONG],
        chosen(every, names),
        LENGTHS,
        unit="words",
        bounds=bounds,
        samples=50,
        seed=1,
        about={},
        bleu=every[0],
    )
    values: dict[str, Any] = {
        "report": found, "entries": [entry(name) for name in WRONG], "missing": [],
        "metric": metric, "date": "2026-11-21", "command": "nmt-compare encoding=all",
        "caption": ["Greedy search."],
    }  # fmt: skip
    return Ranking(**{**values, **changes})


@pytest.fixture(scope="module")
def four() -> Ranking:
    return made()


def test_empty_buckets_are_left_out_and_the_longest_decides(four: Ranking) -> None:
    assert [row.name for row in four.rows] == ["0-20", "21-35", "36-60", "all"]
    assert four.report.rows[3].pairs == 0
    assert four.longest.name == "36-60"
    assert [four.entries[s].label for s in four.order] == ["good", "middle", "tie", "bad"]


def test_the_order_is_that_of_the_longest_bucket_not_of_all_pairs() -> None:
    """A system that is right on short sources alone comes last."""
    base = made()
    short = [r if n <= 35 else "wrong" for r, n in zip(RIGHT, LENGTHS, strict=True)]
    every = scorers(RIGHT, "en", None, 50, 1)
    found = report.compare(
        [System("short", short), System("bad", noisy(RIGHT, 0.6))],
        chosen(every, ["BLEU"]),
        LENGTHS,
        unit="words",
        bounds=[20, 35],
        samples=50,
        seed=1,
        about={},
    )
    one = Ranking(found, [entry("short"), entry("bad")], [], "BLEU", base.date, "", [])
    whole = [cell.scores["BLEU"].score for cell in found.rows[-1].cells]
    assert whole[0] > whole[1]
    assert [one.entries[s].label for s in one.order] == ["bad", "short"]


def test_lower_is_better_turns_the_order_round() -> None:
    one = made("TER")
    assert [one.entries[s].label for s in one.order] == ["good", "middle", "tie", "bad"]
    scores = [one.longest.cells[s].scores["TER"].score for s in one.order]
    assert scores == sorted(scores)


def test_the_text_shows_the_report_s_numbers(four: Ranking) -> None:
    lines = ranking.text(four).split("\n")
    first = re.split(r" {2,}", lines[1].strip())
    cells = [row.cells[1] for row in four.rows]  # of "good"
    expected = [
        f"{c.scores['BLEU'].score:.1f} [{c.scores['BLEU'].low:.1f}, {c.scores['BLEU'].high:.1f}]"
        + ("^" if c.unseen else "")
        for c in cells
    ]
    exact, ratio = cells[-1].scores["exact"].score, cells[2].ratio
    assert first == [
        "good",
        "2,112",
        "1,234,567",
        "9,876",
        *expected,
        f"{exact:.1f}",
        f"{ratio:.2f}",
    ]
    assert exact > 0 and cells[2].unseen and not cells[1].unseen
    assert len({len(line) for line in lines[:5]}) == 1  # columns stand under their headings
    said = "\n".join(lines)
    assert "Sorted by BLEU of 36-60" in said and "Greedy search." in said
    assert "Every model made 640 updates." in said
    assert "longer than any this system was trained on" in said


def test_markdown_is_a_dated_table_of_as_many_columns_everywhere(four: Ranking) -> None:
    lines = ranking.markdown(four).split("\n")
    assert lines[0] == "2026-11-21: `nmt-compare encoding=all`"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert len({line.count("|") for line in table}) == 1
    assert table[2].startswith("| good | 2,112 |")
    assert "exact match %" in table[0]


def test_exact_as_the_metric_has_the_buckets_and_no_second_column() -> None:
    said = ranking.text(made("exact"))
    assert "exact 36-60" in said and "exact match %" not in said and "BLEU " not in said


def test_what_is_missing_or_unequal_is_said() -> None:
    missing = [Missing("lost", "training failed (exit 70): nmt: diverged", "runs/lost.log")]
    entries = [entry(name, step=i, tokens_per_second=None) for i, name in enumerate(WRONG)]
    said = ranking.text(made(missing=missing, entries=entries))
    assert "lost: training failed (exit 70): nmt: diverged; see runs/lost.log" in said
    assert "THE BUDGETS DIFFER, in updates: bad 0, good 1" in said
    assert re.search(r"^good +2,112 +1,234,567 +- ", said, re.M)


def test_json_holds_everything_in_the_order_of_the_table(four: Ranking) -> None:
    plain = json.loads(json.dumps(four.to_json(), allow_nan=False))
    assert [each["label"] for each in plain["systems"]] == ["good", "middle", "tie", "bad"]
    assert plain["date"] == "2026-11-21" and plain["metric"] == "BLEU"
    assert Report.from_json(plain["report"]) == four.report


@pytest.mark.parametrize("metric", ["BLEU", "TER"])
def test_pictures_hold_every_number_and_are_the_same_again(metric: str, tmp_path: Path) -> None:
    one = made(metric)
    for name in ("a.svg", "b.svg"):
        heatmap.draw(one, tmp_path / name)
    svg = (tmp_path / "a.svg").read_text()
    assert svg == (tmp_path / "b.svg").read_text()
    for row in one.rows:  # matplotlib leaves the text of a label as a comment
        for cell in row.cells:
            assert f"{cell.scores[metric].score:.1f}  [" in svg
    places = [svg.index(f"<!-- {one.entries[s].label} -->") for s in one.order]
    assert places == sorted(places)
    best, worst = (one.rows[0].cells[s].scores[metric].score for s in (one.order[0], one.order[-1]))
    assert svg.index(f"<!-- {best:.1f}  [") < svg.index(f"<!-- {worst:.1f}  [")  # row by row


def test_a_picture_of_seventy_grows_in_height(tmp_path: Path) -> None:
    few = made()
    cells = {row.name: [row.cells[i % 4] for i in range(70)] for row in few.report.rows}
    rows = [report.Row(**{**vars(row), "cells": cells[row.name]}) for row in few.report.rows]
    names = [f"e{i}" for i in range(70)]
    many = Ranking(
        Report(**{**vars(few.report), "rows": rows, "systems": names}),
        [entry(name) for name in names], [], "BLEU", few.date, "", [],
    )  # fmt: skip
    for name, one in (("few.png", few), ("many.png", many)):
        heatmap.draw(one, tmp_path / name)
    heights = [
        int.from_bytes((tmp_path / name).read_bytes()[20:24], "big")
        for name in ("few.png", "many.png")
    ]
    assert heights[1] - heights[0] == pytest.approx(66 * heatmap.CELL[1] * 150, abs=3)
