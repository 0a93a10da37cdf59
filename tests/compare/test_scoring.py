"""Means over seeds, their intervals and tests, against loops and against one seed each."""

from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from nmt.compare import scoring, significance
from nmt.compare.buckets import from_bounds, indices
from nmt.compare.report import TESTED, BucketScores, ScoredTest
from nmt.compare.scores import Scorer, length_ratio, scorers, select
from nmt.compare.scoring import Bootstrap, TranslatedTest, count
from tests.compare.made_up import lengths, noisy, references, score

pytestmark = pytest.mark.usefixtures("each_run_counted_once")
RIGHT = references(150)
LENGTHS = lengths(RIGHT)
BOUNDS = [10, 20, 35, 50]
NAMES = ["BLEU", "chrF2", "TER", "exact"]
GOOD = [noisy(RIGHT, 0.2, seed=s) for s in (11, 12, 13)]
WORSE = [noisy(RIGHT, 0.4, seed=s) for s in (21, 22)]
LIKE_GOOD = [noisy(RIGHT, 0.2, seed=31)]
SAMPLES, SEED = 40, 7


def used(names: list[str] = NAMES) -> list[Scorer]:
    return select(scorers(RIGHT, "en", None, SAMPLES, SEED), names)


def translated(systems: list[list[list[str]]], **changes: Any) -> TranslatedTest:
    values = {"lengths": LENGTHS, "unit": "words", "metrics": NAMES} | changes
    return TranslatedTest(RIGHT, systems, **values)


def scored(
    systems: list[list[list[str]]], longest: list[int | None], bounds: list[int] = BOUNDS
) -> list[BucketScores]:
    test = translated(systems, longest_trained=longest)
    return score(test, Bootstrap(bounds, SAMPLES, SEED)).rows


@pytest.fixture(scope="module")
def three() -> list[BucketScores]:
    return scored([GOOD, WORSE, LIKE_GOOD], [20, 30, None])


def test_buckets_score_as_sacrebleu_scores_split_files() -> None:
    """One run each, its ratio too, and each interval around its score."""
    systems = [GOOD[0], WORSE[0]]
    rows = scored([[run] for run in systems], [20, 30])
    for row in rows:
        inside = [
            i
            for i, n in enumerate(LENGTHS)
            if row.name == "all" or (n >= row.low and (row.high is None or n <= row.high))
        ]
        assert row.pairs == len(inside)
        for run, cell in zip(systems, row.cells, strict=True):
            if not inside:
                assert cell.scores == {}
                continue
            split = [run[i] for i in inside], [[RIGHT[i] for i in inside]]
            for name, metric in (("BLEU", BLEU()), ("TER", TER())):
                got, expected = cell.scores[name], metric.corpus_score(*split).score
                assert got.mean == pytest.approx(expected, abs=1e-9)
                assert got.seeds == [got.mean] and got.deviation is None
                assert got.low < got.mean < got.high
            whole = BLEU().corpus_score(*split)
            assert cell.ratio == pytest.approx(whole.sys_len / whole.ref_len)
    assert sum(row.pairs for row in rows[:-1]) == rows[-1].pairs == 150
    assert [row.few for row in rows] == [True, True, True, True, False, False]


def test_beyond_the_trained_length(three: list[BucketScores]) -> None:
    far = np.array([[cell.beyond for cell in row.cells] for row in three])
    assert far[:, 0].tolist() == [False, False, True, True, True, False]  # longest 20
    assert far[:, 1].tolist() == [False, False, False, True, True, False]  # longest 30
    assert not far[:, 2].any()  # unknown
    edge = scored([GOOD[:1]], [21])  # the bucket 21-35 holds one length that it knows
    assert [row.cells[0].beyond for row in edge] == [False, False, False, True, True, False]


def test_equal_systems_do_not_differ() -> None:
    for row in scored([GOOD[:1], GOOD[:1]], [None, None]):
        assert {score.p for score in row.cells[1].scores.values()} <= {1, None}


def test_the_references_themselves_are_perfect() -> None:
    names = ["BLEU", "BLEU-moses", "chrF2", "TER"]
    test = translated([[RIGHT]], metrics=names)
    perfect = score(test, Bootstrap(BOUNDS, SAMPLES, SEED)).rows[-1].cells[0]
    for name, best in zip(names, (100, 100, 100, 0), strict=True):
        e = perfect.scores[name]
        assert (e.mean, e.low, e.high) == pytest.approx((best, best, best))
    assert perfect.ratio == 1


def test_the_order_of_systems_changes_no_score(three: list[BucketScores]) -> None:
    turned = scored([LIKE_GOOD, WORSE, GOOD], [None, 30, 20])
    for row, other in zip(three, turned, strict=True):
        for cell, same in zip(row.cells, other.cells[::-1], strict=True):
            for name, e in cell.scores.items():
                o = same.scores[name]
                assert e.mean == pytest.approx(o.mean)
                if len(e.seeds) == 1:  # Student's t is drawn anew for seeds
                    assert (e.low, e.high) == pytest.approx((o.low, o.high))


def test_without_lengths_there_is_one_row(three: list[BucketScores]) -> None:
    test = translated([GOOD, WORSE, LIKE_GOOD], lengths=None, unit=None)
    whole = score(test, Bootstrap(BOUNDS, SAMPLES, SEED))
    assert [row.name for row in whole.rows] == ["all"] and whole.longest is None
    assert whole.rows[0].cells == three[-1].cells


def test_bleu_makes_the_ratio_though_it_is_not_shown(three: list[BucketScores]) -> None:
    test = translated([GOOD, WORSE, LIKE_GOOD], metrics=["exact"])
    alone = score(test, Bootstrap(BOUNDS, SAMPLES, SEED))
    assert [metric.name for metric in alone.metrics] == list(alone.rows[-1].cells[0].scores)
    for row, other in zip(alone.rows, three, strict=True):
        for cell, same in zip(row.cells, other.cells, strict=True):
            assert cell.ratio == same.ratio
            assert cell.scores.get("exact") == same.scores.get("exact")


def test_where_a_length_lies_on_the_axis() -> None:
    test = score(translated([GOOD[:1]], metrics=["exact"]), Bootstrap(BOUNDS, SAMPLES, SEED))
    assert isinstance(test, ScoredTest) and test.longest == max(LENGTHS) == 40
    assert test.axis_position(20) == 2  # the border of 11-20 and 21-35
    assert test.axis_position(0) == pytest.approx(1 / 11)
    assert test.axis_position(38) == pytest.approx(3 + 3 / 15)  # 36-50 is as wide as any
    assert test.axis_position(40) is None  # no source is longer


def test_means_intervals_and_p_by_two_loops(three: list[BucketScores]) -> None:
    """sacreBLEU on every drawn set of lines, run by run; and Student's t for the seeds."""
    systems, runs = [GOOD, WORSE, LIKE_GOOD], [3, 2, 1]
    metrics = {"BLEU": BLEU(), "TER": TER()}
    bucket, row = from_bounds(BOUNDS)[2], three[2]
    lines = indices(bucket, LENGTHS)
    draws = np.random.default_rng(SEED).integers(len(lines), size=(SAMPLES, len(lines)))

    def score(name: str, run: list[str], some: Any) -> float:
        right = [RIGHT[i] for i in some]
        return metrics[name].corpus_score([run[i] for i in some], [right]).score

    for name in metrics:
        sampled: list[Any] = []
        by_run: list[Any] = []
        for own, cell, n in zip(systems, row.cells, runs, strict=True):
            e = cell.scores[name]
            each = [score(name, run, lines) for run in own]
            assert e.seeds == pytest.approx(each) and len(each) == n
            assert e.mean == pytest.approx(fmean(each))
            if n == 1:
                assert e.deviation is None
            else:
                assert e.deviation == pytest.approx(stdev(each))
            if name == "TER":
                continue  # the draws of it would take half a minute
            by_run.append(np.array([[score(name, run, lines[d]) for d in draws] for run in own]))
        if name == "TER":
            continue
        squares = sum(np.var(own, axis=0) * len(own) for own in by_run)
        rng = np.random.default_rng(SEED)
        for own, cell in zip(by_run, row.cells, strict=True):
            t = rng.standard_t(3, SAMPLES)  # 3 + 2 + 1 runs of three systems
            spread = np.sqrt(squares / 3 / len(own)) * t if len(own) > 1 else 0.0
            sampled.append(np.mean(own, axis=0) + spread)
            ordered, e = sorted(sampled[-1]), cell.scores[name]
            assert (e.low, e.high) == pytest.approx((max(0, ordered[1]), min(100, ordered[-2])))
        for s in (1, 2):
            differences = np.array(sampled[s]) - np.array(sampled[0])
            observed = row.cells[s].scores[name].mean - row.cells[0].scores[name].mean
            extreme = np.abs(differences - differences.mean()) >= abs(observed) - 1e-9
            p = row.cells[s].scores[name].p
            assert p == pytest.approx((extreme.sum() + 1) / (SAMPLES + 1))


def test_who_differs_and_who_does_not(three: list[BucketScores]) -> None:
    good, worse, like_good = (cell.scores["BLEU"] for cell in three[-1].cells)
    assert good.p is None
    assert worse.p is not None and worse.p < 0.05
    assert like_good.p is not None and like_good.p > 0.05
    assert three[-1].cells[0].ratio == pytest.approx(
        fmean(length_ratio(used()[0].counts(run)) or 0 for run in GOOD)
    )


def test_few_pairs_are_not_tested_and_empty_buckets_not_scored(three: list[BucketScores]) -> None:
    assert three[4].pairs == 0
    assert [cell.scores for cell in three[4].cells] == [{}, {}, {}]
    assert [cell.beyond for cell in three[4].cells] == [True, True, False]
    small = scored([GOOD, WORSE], [None, None], bounds=[1])
    assert 0 < small[0].pairs < TESTED
    assert [cell.scores["TER"].p for cell in small[0].cells] == [None, None]


def test_few_draws_at_a_time_and_several_processes_give_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, three: list[BucketScores]
) -> None:
    monkeypatch.setattr(significance, "CHUNK", 1_000)
    assert scored([GOOD, WORSE, LIKE_GOOD], [20, 30, None]) == three
    monkeypatch.setattr(scoring, "LINES", 100)
    test, how = translated([GOOD[:1], WORSE[:1]]), Bootstrap(BOUNDS, SAMPLES, SEED, jobs=2)
    alone = used(["BLEU"])[0]
    for (counts,), run in zip(count(test, how, ["BLEU"]), (GOOD[0], WORSE[0]), strict=True):
        assert (counts["BLEU"] == alone.counts(run)).all()
