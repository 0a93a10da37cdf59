"""The report as text, Markdown, TSV and JSON: what is in it, and that any fits."""

import re
from dataclasses import replace

import pytest

from nmt.evaluation.notation import conclude, notes_of, order_systems
from nmt.evaluation.report import FEW, ComparedSystem, Figure, Report
from nmt.evaluation.text import COLUMNS, render, tsv
from tests.evaluation.made_up import compare, noisy, references

RIGHT = references(240)
SYSTEMS = {
    "good": [noisy(RIGHT, 0.2, seed=1), noisy(RIGHT, 0.2, seed=2)],
    "worse": [noisy(RIGHT, 0.5, seed=3)],
    "best": [RIGHT],
}


@pytest.fixture(scope="module")
def three() -> Report:
    return compare(SYSTEMS, RIGHT, [20, 20, 20])


def test_a_grid_for_each_metric_whose_numbers_are_those_of_the_figures(three: Report) -> None:
    text = render(three)
    grid = text.split("\nBLEU  (")[1].split("\n\n")[0].split("\n")[1:]
    headings = re.split(" {2,}", grid[0].strip())
    assert headings[:3] == ["beyond training", "all", "0-10"]  # as on the page
    names = ["good", "95%", "± 2 seeds", "worse", "95%", "p", "best", "95%", "p"]
    assert [re.split(" {2,}", line.strip())[0] for line in grid[2:]] == names
    for group in three.tests[0].groups:
        assert re.search(rf" {group.name}\b", grid[0])
        assert f"n = {group.pairs}{' few' if group.few else ''}" in grid[1]
        figure = three.figure("BLEU", "worse", group.name)
        assert figure and figure.low is not None and figure.high is not None
        assert f"{figure.mean:.1f}" in grid[5]
        assert f"[{figure.low:.1f}, {figure.high:.1f}]" in grid[6]
    points = [[m.start() for m in re.finditer(r"\.", line)] for line in (grid[2], grid[5], grid[8])]
    assert points[0] == points[1] == points[2]
    assert len({len(line) for line in grid[:2]}) == 1
    assert "length ratio  (" in text and "lost 6-grams, %  (" in text and "(references)" in text
    assert "1,234,567" in text and "6.50 ± 0.71" in text  # of two seeds


def test_marks_and_their_notes_come_together(three: Report) -> None:
    text, notes = render(three), "\n".join(notes_of(three))
    assert "^" in text and "^ every source is longer than any in the system's training." in notes
    assert (
        "* p < 0.05" in notes
        and "±: standard deviation over seeds" in notes
        and "few: under 100 pairs" in notes
    )
    assert "by their pooled deviation with 1 degree of freedom" in notes
    assert notes.count("nrefs:1|bs:40|seed:7|") == 2 and "A note." in notes
    assert "Warning" not in notes
    plain = compare({"one": SYSTEMS["good"][:1]}, RIGHT, bounds=[200])
    quiet = "\n".join(notes_of(plain))
    assert "^" not in quiet and "p <" not in quiet and "few" not in quiet and "±" not in quiet
    assert "seeds of training are held fixed" in quiet
    run = {"run": "r", "seed": 1, "step": 1, "dev_perplexity": None}
    unlike = replace(three, systems=[*three.systems[:2], ComparedSystem("x", runs=[run])])
    assert "Warning: systems were trained for different numbers" in "\n".join(notes_of(unlike))


def test_the_conclusion_is_of_all_lines_beyond_training(three: Report) -> None:
    finding, verdict = conclude(three, three.tests[0])
    beyond = three.tests[0].group("beyond training")
    assert (
        beyond
        and f"On the {beyond.pairs} pairs of test that are longer than any in training" in finding
    )
    assert "best has the highest BLEU, 100.0, against" in finding
    assert re.search(r"against \d\d\.\d ± \d\.\d of good \(p = 0\.\d+\)\.$", finding)
    significant = "differ significantly from good in BLEU (paired bootstrap, p < 0.05)."
    assert verdict == f"On these {beyond.pairs} pairs, worse and best {significant}"


def test_the_conclusion_leaves_open_what_the_numbers_leave_open() -> None:
    def conclusion(report: Report) -> str:
        return " ".join(conclude(report, report.tests[0]))

    right, wrong = RIGHT[:100], SYSTEMS["worse"][0][:100]
    twins = compare({"a": [right], "b": [right]}, right, metrics=["BLEU"])
    assert "On all 100 pairs of test, a and b have the highest BLEU, 100.0." in conclusion(twins)
    assert "On these 100 pairs, no system differs significantly from a in BLEU" in conclusion(twins)
    few = compare({"a": [right[:99]], "b": [wrong[:99]]}, right[:99], metrics=["BLEU"])
    assert conclusion(few).startswith("No conclusion: all 99 pairs of test are too few")
    assert "significant" not in conclusion(few)
    assert conclude(compare({"a": [right]}, right, metrics=["BLEU"]), twins.tests[0]) == []
    lower = compare({"a": [wrong], "b": [right]}, right, metrics=["TER"])
    assert "b has the lowest TER, 0.0" in conclusion(lower)
    half = compare({"a": [right], "b": [wrong]}, right, [20, 999], metrics=["BLEU"])
    assert "pairs of test of length 36-50, beyond training, a has the highest" in conclusion(half)


def test_the_conclusion_names_its_metric_and_group(three: Report) -> None:
    """Stars of another metric, or of another group, do not contradict it."""
    (test,) = three.tests
    figures = [
        replace(f, p=0.4 if (f.metric, f.group) == ("BLEU", "beyond training") else f.p and 0.001)
        for f in three.figures
    ]
    verdict = conclude(replace(three, figures=figures), test)[1]
    beyond = test.group("beyond training")
    assert beyond and verdict.startswith(f"On these {beyond.pairs} pairs, no system differs")
    assert "in BLEU" in verdict


def test_no_star_where_the_number_of_pairs_is_called_unreliable(three: Report) -> None:
    assert Figure("t", "g", FEW, "s", "BLEU", 1.0, p=0.001).significant
    assert not Figure("t", "g", FEW - 1, "s", "BLEU", 1.0, p=0.001).significant
    few = {group.name for group in three.tests[0].groups if group.few}
    assert few and not any(f.significant for f in three.figures if f.group in few)


def test_sorted_by_what_is_beyond_training(three: Report) -> None:
    assert order_systems(three, three.tests[0]) == ["best", "good", "worse"]
    text = render(three, best_first=True)
    assert text.index("\nbest") < text.index("\ngood") < text.index("\nworse")


def test_markdown_has_a_line_for_each_system(three: Report) -> None:
    text = render(three, form="github")
    assert text.startswith("2026-11-28: `nmt-evaluate a b`")
    table = text.split("BLEU  (")[1].split("\n\n")[1].split("\n")
    assert len(table) == 5 and {line.count("|") for line in table} == {table[0].count("|")}
    figure = three.figure("BLEU", "worse", "0-10")
    assert figure and f"{figure.mean:.1f} [{figure.low:.1f}, {figure.high:.1f}]" in table[3]
    pipes = compare({"a|b": [RIGHT]}, RIGHT)
    assert "a\\|b" in render(pipes, form="github")


def test_a_line_of_tsv_for_each_figure_and_nothing_is_rounded(three: Report) -> None:
    lines = [line.split("\t") for line in tsv(three).split("\n")[:-1]]
    assert lines[0] == [*COLUMNS] and {len(line) for line in lines} == {len(COLUMNS)}
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:]]
    assert len(rows) == len(three.figures)
    (row,) = [r for r in rows if (r["system"], r["metric"], r["group"]) == ("good", "BLEU", "all")]
    figure = three.figure("BLEU", "good")
    assert figure and float(row["mean"]) == figure.mean and float(row["low"]) == figure.low
    assert (row["p"], row["runs"], row["unseen"], row["shortest"]) == ("", "2", "no", "")
    odd = compare({"a\tb\nc": [RIGHT]}, RIGHT)
    assert {line.count("\t") for line in tsv(odd).split("\n")[:-1]} == {len(COLUMNS) - 1}
