"""A report holds what sacreBLEU says of the split files; table and plot show it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from nmt import figure
from nmt.compare import plot, report, table
from nmt.compare.report import Report, System
from nmt.compare.scores import scorers
from tests.compare.made_up import lengths, noisy, references

RIGHT = references(150)
LENGTHS = lengths(RIGHT)
SYSTEMS = [
    System("good", noisy(RIGHT, 0.2, seed=11), longest=20),
    System("worse", noisy(RIGHT, 0.4, seed=2), longest=30),
    System("like-good", noisy(RIGHT, 0.2, seed=8)),
]


def made(systems: list[System] = SYSTEMS, **changes: Any) -> Report:
    asked: dict[str, Any] = {
        "lengths": LENGTHS,
        "unit": "words",
        "bounds": [10, 20, 35, 50],
        "samples": 100,
        "seed": 1,
        "about": {"versions": {"nmt": "0"}},
    } | changes
    known = asked.pop("lengths")
    return report.compare(systems, scorers(RIGHT, "en", None, 100, 1), known, **asked)


@pytest.fixture(scope="module")
def three() -> Report:
    return made()


def test_buckets_score_as_sacrebleu_scores_split_files(three: Report) -> None:
    for row in three.rows:
        inside = [
            i
            for i, n in enumerate(LENGTHS)
            if row.name == "all" or (n >= row.low and (row.high is None or n <= row.high))
        ]
        assert row.pairs == len(inside)
        for system, cell in zip(SYSTEMS, row.cells, strict=True):
            if not inside:
                assert cell.scores == {}
                continue
            split = [system.hypotheses[i] for i in inside], [[RIGHT[i] for i in inside]]
            for name, metric in (("BLEU", BLEU()), ("TER", TER())):
                found, expected = cell.scores[name], metric.corpus_score(*split).score
                assert found.score == pytest.approx(expected, abs=1e-9)
                assert found.low < found.score < found.high
            whole = BLEU().corpus_score(*split)
            assert cell.ratio == pytest.approx(whole.sys_len / whole.ref_len)


def test_counts_sum_to_the_corpus(three: Report) -> None:
    assert sum(row.pairs for row in three.rows[:-1]) == three.rows[-1].pairs == 150


def test_marks(three: Report) -> None:
    assert [row.few for row in three.rows] == [True, True, True, True, False, False]
    assert [row.pairs > 0 for row in three.rows] == [True, True, True, True, False, True]
    unseen = np.array([[cell.unseen for cell in row.cells] for row in three.rows])
    assert unseen[:, 0].tolist() == [False, False, True, True, True, False]  # longest 20
    assert unseen[:, 1].tolist() == [False, False, False, True, True, False]  # longest 30
    assert not unseen[:, 2].any()  # unknown
    edge = made([SYSTEMS[0]._replace(longest=21)])  # the bucket 21-35 holds one length it knows
    assert [row.cells[0].unseen for row in edge.rows] == [False, False, False, True, True, False]


def test_p_values(three: Report) -> None:
    good, worse, like_good = (cell.scores["BLEU"] for cell in three.rows[-1].cells)
    assert good.p is None
    assert worse.p is not None
    assert worse.p < 0.05
    assert like_good.p is not None
    assert like_good.p > 0.05
    small = made(bounds=[1])
    assert 0 < small.rows[0].pairs < report.TESTED
    assert all(e.p is None for cell in small.rows[0].cells for e in cell.scores.values())


def test_equal_systems_do_not_differ() -> None:
    twins = made([SYSTEMS[0], System("twin", SYSTEMS[0].hypotheses)])
    for row in twins.rows:
        for estimate in row.cells[1].scores.values():
            assert estimate.p in (1, None)
    assert table.STAR not in table.render(twins).split("[low")[0]


def test_the_references_themselves_are_perfect() -> None:
    perfect = made([System("copy", RIGHT)]).rows[-1].cells[0]
    for name, best in (("BLEU", 100), ("BLEU-moses", 100), ("chrF2", 100), ("TER", 0)):
        e = perfect.scores[name]
        assert (e.score, e.low, e.high) == pytest.approx((best, best, best))
    assert perfect.ratio == 1


def test_the_order_of_systems_is_kept(three: Report) -> None:
    turned = made(SYSTEMS[::-1])
    assert turned.systems == ["like-good", "worse", "good"]
    for row, other in zip(three.rows, turned.rows, strict=True):
        for cell, same in zip(row.cells, other.cells[::-1], strict=True):
            for name, e in cell.scores.items():
                o = same.scores[name]
                assert (e.score, e.low, e.high) == pytest.approx((o.score, o.low, o.high))


def test_json_brings_the_report_back(three: Report) -> None:
    text = json.dumps(three.to_json(), allow_nan=False)
    assert Report.from_json(json.loads(text)) == three
    with pytest.raises(ValueError, match="format 99"):
        Report.from_json({**three.to_json(), "format": 99})


def test_without_lengths_there_is_one_row() -> None:
    whole = made(lengths=None, unit=None)
    assert [row.name for row in whole.rows] == ["all"]
    assert whole.rows[0].cells == made().rows[-1].cells
    assert "no source, hence no lengths" in table.render(whole)


def test_table_lines_are_short_and_straight(three: Report) -> None:
    four = made(
        [*SYSTEMS, System("a-label-that-is-much-too-long-for-a-column", noisy(RIGHT, 0.3), 20)]
    )
    for shown in (three, four):
        text = table.render(shown)
        assert max(map(len, text.split("\n"))) <= table.WIDTH
        bleu = text.split("\n\n")[1].split("\n")
        assert bleu[-2].split() == ["over", "50", "0", *["-"] * (5 if shown is three else 4)]
        scored = [line for line in bleu if "[" in line]
        assert len({line.index("[") for line in scored}) == 1
        assert len({line.rindex(", ") for line in scored}) == 1
    assert "longest source in training: good 20, worse 30\n" in table.render(three)
    assert table.render(three).count("nrefs:1|bs:100|seed:1|") == 5


def test_more_systems_go_below() -> None:
    six = made([System(f"s{i}", noisy(RIGHT, 0.3)) for i in range(6)], samples=40)
    text = table.render(six)
    assert max(map(len, text.split("\n"))) <= table.WIDTH
    heads = [line.split()[2:] for line in text.split("\n") if line.startswith("length  ")]
    assert [h for h in heads if "p" not in h][:1] == [["s0", "s1", "s2", "s3"]]
    assert any({"s0", "s4", "s5"} <= set(h) for h in heads)


@pytest.mark.parametrize("suffix", figure.FORMATS)
def test_plots_are_made_and_repeatable(three: Report, tmp_path: Path, suffix: str) -> None:
    a, b = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    plot.draw(three, a)
    plot.draw(three, b)
    assert a.read_bytes() == b.read_bytes()
    assert a.stat().st_size > 5000


def test_where_the_trained_length_lies() -> None:
    rows = made().rows[:-1]
    assert plot._place(20, rows, 41) == 1.5  # the border of 11-20 and 21-35
    assert plot._place(0, rows, 41) == pytest.approx(-0.5 + 1 / 11)
    assert plot._place(41, rows, 41) is None
