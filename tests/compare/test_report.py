"""A report is plain data that JSON brings back; its blocks and its picture show it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt import figure
from nmt.compare import plot
from nmt.compare.notation import STAR
from nmt.compare.report import ComparedSystem, Report
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.compare.text import render
from nmt.compare.text.columns import WIDTH
from tests.compare import made_up_report
from tests.compare.made_up import lengths, noisy, references, score
from tests.fast import fast_first

pytestmark = pytest.mark.usefixtures("each_run_counted_once")
RIGHT = references(150)
LENGTHS = lengths(RIGHT)
SYSTEMS: dict[str, tuple[list[str], int | None]] = {
    "good": (noisy(RIGHT, 0.2, seed=11), 20),
    "worse": (noisy(RIGHT, 0.4, seed=2), 30),
    "like-good": (noisy(RIGHT, 0.2, seed=8), None),
}


def made(
    systems: dict[str, tuple[list[str], int | None]] = SYSTEMS, samples: int = 100, **changes: Any
) -> Report:
    limits = [longest for _, longest in systems.values()]
    values = {"lengths": LENGTHS, "unit": "words", "longest_trained": limits} | changes
    test = TranslatedTest(RIGHT, [[lines] for lines, _ in systems.values()], **values)
    scored = score(test, Bootstrap([10, 20, 35, 50], samples, seed=1))
    known = [ComparedSystem(label, limit) for label, (_, limit) in systems.items()]
    return Report(known, [scored], samples, 1, about={"versions": {"nmt": "0"}})


@pytest.fixture(scope="module")
def three() -> Report:
    return made()


@pytest.mark.parametrize(
    "whole", [made_up_report.whole, made_up_report.bare, made, made_up_report.empty]
)
def test_json_brings_the_report_back(whole: Any) -> None:
    report = whole()
    text = json.dumps(report.to_json(), allow_nan=False)
    assert Report.from_json(json.loads(text)) == report


def test_json_of_another_format_is_refused(three: Report) -> None:
    with pytest.raises(ValueError, match="format 99"):
        Report.from_json({**three.to_json(), "format": 99})
    with pytest.raises(ValueError, match="Report: no field 'more'"):
        Report.from_json({**three.to_json(), "more": 1})


def test_equal_systems_have_no_star() -> None:
    lines = SYSTEMS["good"][0]
    twins = render(made({"one": (lines, 20), "twin": (lines, 20)}))
    assert STAR not in twins.split("Under-translation")[0]
    assert re.search(r"^twin .*\n  95% .*\n  p +1\.000", twins, re.M)


def test_without_lengths_the_text_says_so() -> None:
    whole = made(lengths=None, unit=None)
    assert "no source, hence no lengths" in render(whole)


def test_a_grid_for_each_metric_short_and_straight(three: Report) -> None:
    text = render(three)
    assert max(map(len, text.split("\n"))) <= WIDTH
    for metric in three.tests[0].metrics:
        grid = text.split(f"\n{metric.name}  (")[1].split("\n\n")[0].split("\n")[1:]
        assert [line.split()[0] for line in grid[2:]] == [
            *("good", "95%", "worse", "95%", "p", "like-good", "95%", "p"),
        ]
        points = [line.index(".") for line in grid[2:] if not line.startswith("  ")]
        assert len(set(points)) == 1
        cell = three.tests[0].rows[0].cells[1].scores[metric.name]
        assert f"[{cell.low:.1f}, {cell.high:.1f}]" in grid[5] and f"{cell.p:.3f}" in grid[6]
    assert "over 50" not in text  # no source is so long
    assert "^" in text and "\n^ every source is longer" in text
    assert text.count("nrefs:1|bs:100|seed:1|") == 4


@pytest.mark.parametrize("suffix", fast_first(1, figure.FORMATS))
def test_plots_are_made_and_repeatable(three: Report, tmp_path: Path, suffix: str) -> None:
    a, b = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    plot.draw(three, a)
    plot.draw(three, b)
    assert a.read_bytes() == b.read_bytes()
    assert a.stat().st_size > 5000


def test_no_two_systems_of_a_plot_look_alike() -> None:
    styles = {tuple(plot._style(s).values()) for s in range(49)}
    assert len(styles) == 49


def test_plots_show_where_training_ends(three: Report, tmp_path: Path) -> None:
    """matplotlib leaves the text of a label as a comment."""
    plot.draw(three, tmp_path / "a.svg")
    svg = (tmp_path / "a.svg").read_text()
    assert "longest in training: 20, good" in svg and "longest in training: 30, worse" in svg
    typed = [
        replace(s, label=label)
        for s, label in zip(three.systems, ("_b", "c$_$5", "$"), strict=True)
    ]
    plot.draw(replace(three, systems=typed), tmp_path / "b.svg")
    svg = (tmp_path / "b.svg").read_text()
    assert all(f"<!-- {system.label} -->" in svg for system in typed)
    beyond = replace(three.tests[0], longest=20)  # no source is longer than 20
    plot.draw(replace(three, tests=[beyond]), tmp_path / "b.svg")
    assert "longest in training" not in (tmp_path / "b.svg").read_text()
