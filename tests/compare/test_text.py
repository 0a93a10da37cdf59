"""The report for a terminal: the exact text of a small study, and the bounds of any."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from nmt.compare.report import (
    BucketScores,
    ComparedSystem,
    LearningCurve,
    Metric,
    PaperTable,
    Report,
    Score,
    ScoredTest,
    SystemScores,
    TrainedRun,
    UnderTranslation,
)
from nmt.compare.text import render, tsv
from nmt.compare.text.columns import WIDTH
from nmt.compare.text.tab_separated import HEADING
from tests.compare import made_up_report as made_up

CURVE = LearningCurve([], [], [], [], [])


def score(mean: float, p: float | None, published: float | None, seeds: int = 2) -> Score:
    deviation = 0.25 if seeds > 1 else None
    return Score(mean, deviation, [mean] * seeds, mean - 1.04, mean + 1, p, published)


def cell(bleu: Score | None, ter: Score | None, beyond: bool = False) -> SystemScores:
    named = {"BLEU-moses": bleu, "TER": ter}
    scores = {name: value for name, value in named.items() if value}
    signs = UnderTranslation(0.0512, 0.01, 0.125, None) if scores else None
    return SystemScores(scores, 0.949 if scores else None, beyond, signs)


def run(seed: int, step: int = 4000) -> TrainedRun:
    return TrainedRun(f"runs/s{seed}", seed, step, 12.0, 900.0 + seed, 5.0 + seed, CURVE)


def small() -> Report:
    long = cell(score(9.96, None, 21.5), score(104, None, 69.3), True)
    short = cell(score(31.74, None, 31.7), score(57.9, None, 57.9))
    others = [
        cell(score(31.9, 0.2, None, 1), score(8.0, 0.01, None, 1)),
        cell(score(31.0, 0.049, None, 1), score(59.0, None, None, 1)),
    ]
    whole = cell(score(30.0, None, None), score(60.0, None, None))
    rows = [
        BucketScores("0-25", 0, 25, 1204, False, [short, others[0]]),
        BucketScores("over 25", 26, None, 40, True, [long, cell(None, None, True)]),
        BucketScores("over 99", 100, None, 0, False, [cell(None, None, True), cell(None, None)]),
        BucketScores("all", 0, None, 1244, False, [whole, others[1]]),
    ]
    metrics = [
        Metric("BLEU-moses", "cased", True, "nrefs:1|tok:none"),
        Metric("TER", "edits", False, "nrefs:1|case:lc"),
    ]
    systems = [
        ComparedSystem("absolute 100", 100, 44_140_544, 0, [run(1), run(2)]),
        ComparedSystem(
            "relative and much too long a name", None, 44_240_544, 100_000, [run(1, 3999)]
        ),
    ]
    return Report(
        title="A small study",
        date="2026-11-21",
        command="nmt-evaluate",
        notes=["One note."],
        systems=systems,
        tests=[ScoredTest("news", "News.", "pieces", 130, metrics, rows)],
        tables=[
            PaperTable("Table 2", "by length", "news", [0, 1], ["BLEU-moses", "TER"], True),
            PaperTable("Table 1", "whole", "news", [1], ["TER"], False, buckets=False),
        ],
        samples=1000,
        seed=12345,
    )


EXPECTED = """\
A small study

Table 2: by length
news, 1,244 pairs; source length in pieces; BLEU-moses / TER

                      0-25              over 25            all
                      n = 1,204         n = 40 few         n = 1,244
absolute 100           31.7  /  57.9     10.0  / 104.0 ^    30.0  /  60.0
  95% of BLEU-moses   [30.7, 32.7]      [8.9, 11.0]        [29.0, 31.0]
  ± 2 seeds             0.2  /   0.2      0.2  /   0.2       0.2  /   0.2
  paper                31.7  /  57.9     21.5  /  69.3         -  /     -
  difference           +0.0  /  +0.0    -11.5  / +34.7         -  /     -
relative and much too long a name
                       31.9  /   8.0*       -  /     -      31.0* /  59.0
  95% of BLEU-moses   [30.9, 32.9]      -                  [30.0, 32.0]
  p of BLEU-moses     0.200             -                  0.049

Table 1: whole
news, 1,244 pairs; TER

        all
        n = 1,244
relative and much too long a name
        59.0
  95%   [58.0, 60.0]

Systems
              parameters  of encodings  seeds  updates      dev ppl  longest  tokens/s
absolute 100  44,140,544             0      2    4,000  6.50 ± 0.71      100       902
relative and much too long a name
              44,240,544       100,000      1    3,999         6.00        -       901
longest: source in training, in pieces; tokens/s: of the target, in training, median

Under-translation, news
                           0-25        over 25      all
                           n = 1,204   n = 40 few   n = 1,244
length ratio
  absolute 100             0.95        0.95         0.95
  relative and much too long a name
                           0.95        -            0.95
repeated 4-grams, %
  absolute 100             5.1         5.1          5.1
  relative and much too long a name
                           5.1         -            5.1
  (the references)         1.0         1.0          1.0
source never attended, %
  absolute 100             12.5        12.5         12.5
  relative and much too long a name
                           12.5        -            12.5

95%: interval, bootstrap over the pairs, 1000 samples, seed 12345; and over seeds, by their pooled
  deviation with 1 degree of freedom, that of systems without several seeds held fixed.
p: paired bootstrap of the means over seeds against absolute 100; two-sided, uncorrected, from 30
  pairs. * p < 0.05.
^ every source is longer than any in the system's training.
few: under 100 pairs, not reliable.
paper: Rosendahl et al. (2019).
Longest source: news 130.
Warning: systems were trained for different numbers of updates: absolute 100 4,000, relative and
  much too long a name 3,999.
One note.
BLEU-moses: nrefs:1|tok:none
TER: nrefs:1|case:lc
"""


def test_a_small_study_exactly() -> None:
    assert render(small()) == EXPECTED


def test_the_paper_s_table_fits_side_by_side() -> None:
    """Five buckets and all pairs, BLEU and TER, three seeds: one block, as in the paper."""
    found = render(made_up.whole())
    lines = found.split("\n")
    assert max(map(len, lines)) <= WIDTH
    heads = [line.split() for line in lines if line.strip().startswith("0-25")]
    assert heads[0] == ["0-25", "26-50", "51-75", "76-100", "over", "100", "all"]
    table = found[found.index("Table 2:") :].split("\n\n")[1].split("\n")
    assert len({len(line) - len(line.lstrip()) for line in table[:2]}) == 1
    places = [i for i, line in enumerate(table) if not line.startswith(" ")]
    assert [table[i].split("  ")[0] for i in places] == made_up.LABELS
    for start, end in pairwise([*places, len(table)]):
        numbers = [row for row in table[start:end] if not row.startswith(("  95%", "  p "))]
        assert len({row.index("/") for row in numbers}) == 1
    assert "\x1b" not in found and "\x00" not in found


def test_more_buckets_go_below_without_empty_lines_of_the_paper() -> None:
    some = small()
    rows, last = some.tests[0].rows, []
    for buckets in range(4, 14):
        many = [replace(rows[0], name=f"bucket {i}") for i in range(buckets)] + [rows[3]]
        found = render(replace(some, tests=[replace(some.tests[0], rows=many)]))
        assert max(map(len, found.split("\n"))) <= WIDTH
        blocks = found[found.index("Table 2:") : found.index("Table 1:")].strip().split("\n\n")[1:]
        assert all(block.count("absolute 100") == 1 for block in blocks)
        shown = [name for block in blocks for name in re.findall(r"bucket \d+", block)]
        assert shown == [f"bucket {i}" for i in range(buckets)]
        assert "  paper" in blocks[0]
        last += [blocks[-1]] if "bucket" not in blocks[-1] else []
    assert last  # some number of buckets leaves all pairs, which the paper has not, alone below
    assert all("paper" not in block and "± 2 seeds" in block for block in last)


@pytest.mark.parametrize("made", [made_up.bare(), made_up.empty()], ids=["bare", "empty"])
def test_what_is_not_known_is_a_dash(made: Report) -> None:
    found = render(made)
    assert made.title in found and "None" not in found and "nan" not in found


def test_one_number_a_line() -> None:
    heading, *lines = [line.split("\t") for line in tsv(small()).rstrip("\n").split("\n")]
    assert tuple(heading) == HEADING
    assert {len(line) for line in lines} == {len(HEADING)}
    found = [dict(zip(heading, line, strict=True)) for line in lines]
    (one,) = [
        line
        for line in found
        if (line["bucket"], line["system"], line["metric"]) == ("over 25", "absolute 100", "TER")
    ]
    assert one == {
        "test": "news",
        "bucket": "over 25",
        "shortest": "26",
        "longest": "",
        "pairs": "40",
        "system": "absolute 100",
        "runs": "2",
        "unseen": "yes",
        "metric": "TER",
        "mean": "104",
        "deviation": "0.25",
        "low": str(104 - 1.04),
        "high": "105",
        "p": "",
        "published": "69.3",
        "difference": str(104 - 69.3),
        "signature": "nrefs:1|case:lc",
    }
    training = {line["metric"]: line["mean"] for line in found if line["test"] == "training"}
    assert training["updates"] == "3999.0"  # of the last system
    shares = [line["mean"] for line in found if line["metric"] == "source never attended"]
    assert shares == ["0.125"] * 5
    hostile = tsv(replace(small(), title="x", systems=[
        replace(system, label="tab\tand\nline") for system in small().systems
    ]))  # fmt: skip
    assert {line.count("\t") for line in hostile.rstrip("\n").split("\n")} == {len(HEADING) - 1}


def test_parts_of_joined_lines_and_what_is_lost() -> None:
    report = made_up.whole()
    report = replace(report, tests=report.tests[1:], tables=[])
    parts, lost = render(report).split("Parts of joined lines by place, ")[1].split("Lost beyond ")
    assert re.search(r"1 of 2 +2 of 2 +1 of 3 +2 of 3 +3 of 3\n", parts)
    assert "n = 40 few" in parts and "6-grams that arrived, %" in parts
    assert re.search(r"  relative 100 +60\.0 +50\.0 +60\.0 +50\.0 +40\.0\n", parts)
    assert re.search(r"    95% +\[50\.0, 70\.0\] +\[40\.0, 60\.0\]", parts)
    assert re.search(r"  absolute 100 +- +- +- +- +-\n", parts)
    assert re.search(r"relative 75 +201 +30\.0 \[28\.0, 33\.0\] +60\.0 \[58\.0, 63\.0\]", lost)
    assert re.search(r"absolute 100 +-( +-)+\n", lost)
    assert lost.count("lost: share of the references' character 6-grams") == 1
    losses = [parts and replace(parts, pairs=99) for parts in report.tests[0].losses]
    few = replace(report.tests[0], places=[], losses=losses, rows=report.tests[0].rows[-1:])
    assert re.search(r"relative 75 +99 few +30\.0", render(replace(report, tests=[few])))
    assert "few: under 100 pairs" in render(replace(report, tests=[few]))
    numbers = [
        dict(zip(HEADING, line.split("\t"), strict=True)) for line in tsv(report).split("\n")[1:-1]
    ]
    place = [n for n in numbers if n["bucket"] == "part 2 of 3" and n["system"] == "LSTM 100"]
    assert [(n["metric"], round(float(n["mean"]), 3), n["low"] != "") for n in place] == [
        ("6-grams that arrived", 0.5, True),
        ("lines in which it was left out", 0.2, False),
        ("6-grams too many", 0.02, False),
    ]
    for bucket, lines, pairs in (("beyond", 4 * 4, "201"), ("within", 4, "")):
        found = [n for n in numbers if n["bucket"] == bucket]
        assert len(found) == lines and {n["pairs"] for n in found} == {pairs}
