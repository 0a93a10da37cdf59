"""Means over seeds, their intervals and tests, against loops and against one seed each."""

from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.ter import TER

from nmt.compare import report, seeds, significance
from nmt.compare.buckets import make, members
from nmt.compare.scores import Scorer, chosen, length_ratio, scorers
from nmt.compare.seeds import Runs, counted, rows
from nmt.compare.study import Row
from tests.compare.made_up import lengths, noisy, references

RIGHT = references(150)
LENGTHS = lengths(RIGHT)
BOUNDS = [10, 20, 35, 50]
NAMES = ["BLEU", "chrF2", "TER", "exact"]
GOOD = [noisy(RIGHT, 0.2, seed=s) for s in (11, 12, 13)]
WORSE = [noisy(RIGHT, 0.4, seed=s) for s in (21, 22)]
LIKE_GOOD = [noisy(RIGHT, 0.2, seed=31)]
SAMPLES, SEED = 100, 7


def used(names: list[str] = NAMES) -> list[Scorer]:
    return chosen(scorers(RIGHT, "en", None, SAMPLES, SEED), names)


def scored(systems: list[list[list[str]]], longest: list[int | None], **changes: Any) -> list[Row]:
    counts = counted(systems, RIGHT, "en", NAMES, jobs=1)
    asked: dict[str, Any] = {"bounds": BOUNDS, "samples": SAMPLES, "seed": SEED} | changes
    runs = [Runs(*own) for own in zip(counts, longest, strict=True)]
    return rows(runs, used(), 0, LENGTHS, *asked.values())


@pytest.fixture(scope="module")
def three() -> list[Row]:
    return scored([GOOD, WORSE, LIKE_GOOD], [20, 30, None])


def test_one_seed_each_is_what_nmt_evaluate_says() -> None:
    systems = [GOOD[0], WORSE[0], LIKE_GOOD[0]]
    labelled = [report.System(str(i), own, 20 + i) for i, own in enumerate(systems)]
    expected = report.compare(
        *(labelled, used(), LENGTHS),
        unit="words",
        bounds=BOUNDS,
        samples=SAMPLES,
        seed=SEED,
        about={},
    )
    found = scored([[own] for own in systems], [20, 21, 22])
    assert len(found) == len(expected.rows) == 6
    compared = 0
    for row, other in zip(found, expected.rows, strict=True):
        assert (row.name, row.low, row.high) == (other.name, other.low, other.high)
        assert (row.pairs, row.few) == (other.pairs, other.few)
        for cell, known in zip(row.cells, other.cells, strict=True):
            assert (cell.ratio, cell.unseen) == (known.ratio, known.unseen)
            assert list(cell.scores) == list(known.scores)
            for name, e in cell.scores.items():
                k = known.scores[name]
                assert (e.mean, e.low, e.high, e.p) == (k.score, k.low, k.high, k.p)
                assert e.deviation is None and e.seeds == [k.score]
                compared += 1
    assert compared == 5 * 3 * 4  # one of the six rows is empty


def test_means_intervals_and_p_by_two_loops(three: list[Row]) -> None:
    """sacreBLEU on every drawn set of lines, run by run."""
    systems, runs = [GOOD, WORSE, LIKE_GOOD], [3, 2, 1]
    metrics = {"BLEU": BLEU(), "TER": TER()}
    bucket, row = make(BOUNDS)[2], three[2]
    lines = members(bucket, LENGTHS)
    draws = np.random.default_rng(SEED).integers(len(lines), size=(SAMPLES, len(lines)))

    def score(name: str, run: list[str], some: Any) -> float:
        right = [RIGHT[i] for i in some]
        return metrics[name].corpus_score([run[i] for i in some], [right]).score

    for name in metrics:
        sampled: list[list[float]] = []
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
                continue  # a hundred draws of it would take a minute
            sampled.append([fmean(score(name, run, lines[d]) for run in own) for d in draws])
            ordered = sorted(sampled[-1])
            assert (e.low, e.high) == pytest.approx((ordered[2], ordered[97]))
        if name == "TER":
            continue
        for s in (1, 2):
            differences = np.array(sampled[s]) - np.array(sampled[0])
            observed = row.cells[s].scores[name].mean - row.cells[0].scores[name].mean
            extreme = np.abs(differences - differences.mean()) >= abs(observed) - 1e-9
            p = row.cells[s].scores[name].p
            assert p == pytest.approx((extreme.sum() + 1) / (SAMPLES + 1))


def test_who_differs_and_who_does_not(three: list[Row]) -> None:
    good, worse, like_good = (cell.scores["BLEU"] for cell in three[-1].cells)
    assert good.p is None
    assert worse.p is not None and worse.p < 0.05
    assert like_good.p is not None and like_good.p > 0.05
    assert three[-1].cells[0].ratio == pytest.approx(
        fmean(length_ratio(used()[0].counts(run)) or 0 for run in GOOD)
    )


def test_few_pairs_are_not_tested_and_empty_buckets_not_scored(three: list[Row]) -> None:
    assert three[4].pairs == 0
    assert [cell.scores for cell in three[4].cells] == [{}, {}, {}]
    assert [cell.unseen for cell in three[4].cells] == [True, True, False]
    small = scored([GOOD, WORSE], [None, None], bounds=[1])
    assert 0 < small[0].pairs < report.TESTED
    assert [cell.scores["TER"].p for cell in small[0].cells] == [None, None]


def test_a_system_without_translations_has_empty_cells() -> None:
    """The first that translated is the baseline, and the numbers do not depend on who is absent."""
    with_gap = scored([[], GOOD, [], WORSE], [10, 20, None, 30])
    without = scored([GOOD, WORSE], [20, 30])
    for row, other in zip(with_gap, without, strict=True):
        assert row.cells[0].scores == row.cells[2].scores == {}
        assert row.cells[0].ratio is None
        assert [row.cells[1], row.cells[3]] == other.cells


def test_small_blocks_and_several_processes_give_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, three: list[Row]
) -> None:
    resampled, shapes = significance.resampled, list[int]()

    def watched(counts: Any, samples: int, seed: int) -> Any:
        shapes.append(counts.size)
        return resampled(counts, samples, seed)

    monkeypatch.setattr(seeds, "resampled", watched)
    monkeypatch.setattr(seeds, "BLOCK", 10_000)
    assert scored([GOOD, WORSE, LIKE_GOOD], [20, 30, None]) == three
    assert max(shapes) <= 10_000 and len(shapes) > 5
    monkeypatch.setattr(seeds, "LINES", 100)
    tasks = counted([GOOD[:1], WORSE[:1]], RIGHT, "en", ["BLEU"], jobs=2)
    alone = used(["BLEU"])[0]
    for (found,), run in zip(tasks, (GOOD[0], WORSE[0]), strict=True):
        assert (found[0] == alone.counts(run)).all()
