"""Figures of groups, their intervals and tests, against loops and sacreBLEU on split files."""

from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.evaluation import significance
from nmt.evaluation.report import BEYOND, REFERENCES, Figure, Report
from nmt.evaluation.scoring import choose_lines
from nmt.evaluation.significance import count_runs
from tests.evaluation.made_up import by_name, compare, lengths, noisy, references

RIGHT = references(120)
LENGTHS = lengths(RIGHT)
GOOD = [noisy(RIGHT, 0.2, seed=s) for s in (11, 12)]
WORSE = [noisy(RIGHT, 0.4, seed=s) for s in (21, 22)]
LIKE_GOOD = [noisy(RIGHT, 0.2, seed=31)]
SYSTEMS = {"good": GOOD, "worse": WORSE, "like good": LIKE_GOOD}
SAMPLES, SEED = 40, 7


@pytest.fixture(scope="module")
def three() -> Report:
    return compare(SYSTEMS, RIGHT, [20, 30, None], metrics=["BLEU", "TER"])


def figure(report: Report, metric: str, system: str, group: str = "all") -> Figure:
    row = report.figure(metric, system, group)
    assert row is not None
    return row


def test_groups_score_as_sacrebleu_scores_split_files(three: Report) -> None:
    """One run each, its ratio too, and each interval around its score."""
    (test,) = three.tests
    for group in test.groups:
        low, high = group.low or 0, group.high or 999
        low = 31 if group.name == BEYOND else low
        inside = [i for i, n in enumerate(LENGTHS) if low <= n <= high]
        assert group.pairs == len(inside)
        split = [LIKE_GOOD[0][i] for i in inside], [[RIGHT[i] for i in inside]]
        for name, metric in (("BLEU", BLEU()), ("TER", TER())):
            got = figure(three, name, "like good", group.name)
            assert got.mean == pytest.approx(metric.corpus_score(*split).score, abs=1e-9)
            assert got.seeds == [got.mean] and got.deviation is None
            assert got.low is not None and got.high is not None and got.low < got.mean < got.high
        whole = BLEU().corpus_score(*split)
        ratio = figure(three, "length ratio", "like good", group.name).mean
        assert ratio == pytest.approx(whole.sys_len / whole.ref_len)
    names = ["0-10", "11-20", "21-35", "36-50", BEYOND, "all"]  # none is over 50
    assert [group.name for group in test.groups] == names
    assert sum(bucket.pairs for bucket in test.buckets) == len(RIGHT)
    assert [group.few for group in test.groups] == [True, True, True, True, True, False]


def test_what_is_unseen(three: Report) -> None:
    def unseen(system: str) -> list[str]:
        rows = (three.figure("BLEU", system, group.name) for group in three.tests[0].groups)
        return [row.group for row in rows if row and row.unseen]

    assert unseen("good") == ["21-35", "36-50", BEYOND]  # longest 20
    assert unseen("worse") == ["36-50", BEYOND]  # longest 30
    assert unseen("like good") == []  # unknown
    edge = compare({"a": GOOD[:1]}, RIGHT, [21])  # the bucket 21-35 holds one length that it knows
    assert not figure(edge, "BLEU", "a", "21-35").unseen


def test_equal_systems_do_not_differ_and_the_references_are_perfect() -> None:
    twins = compare({"a": GOOD[:1], "b": GOOD[:1], "right": [RIGHT]}, RIGHT)
    assert {f.p for f in twins.figures if f.system == "b"} == {1, None}  # None: few pairs
    perfect = figure(twins, "BLEU", "right")
    assert (perfect.mean, perfect.low, perfect.high) == pytest.approx((100, 100, 100))
    assert figure(twins, "length ratio", "right").mean == 1
    assert figure(twins, "lost 6-grams", "right").mean == 0
    own, of_system = (figure(twins, "repeated 4-grams", s) for s in (REFERENCES, "right"))
    assert own.mean == of_system.mean


def test_means_intervals_and_p_by_two_loops(three: Report) -> None:
    """sacreBLEU on every drawn set of lines, run by run; and Student's t for the seeds."""
    lines = [i for i, n in enumerate(LENGTHS) if 21 <= n <= 35]
    draws = np.random.default_rng(SEED).integers(len(lines), size=(SAMPLES, len(lines)))

    bleu = BLEU()  # one, which remembers the tokens of a line

    def score(run: list[str], some: Any) -> float:
        chosen = [lines[i] for i in some]
        return bleu.corpus_score([run[i] for i in chosen], [[RIGHT[i] for i in chosen]]).score

    by_run = []
    for label, runs in SYSTEMS.items():
        row = figure(three, "BLEU", label, "21-35")
        each = [score(run, range(len(lines))) for run in runs]
        assert row.seeds == pytest.approx(each) and row.mean == pytest.approx(fmean(each))
        deviation = None if len(runs) == 1 else pytest.approx(stdev(each))
        assert row.deviation == deviation
        by_run.append(np.array([[score(run, draw) for draw in draws] for run in runs]))
    squares = sum(np.var(own, axis=0) * len(own) for own in by_run)
    rng, sampled = np.random.default_rng(SEED), []
    for label, own in zip(SYSTEMS, by_run, strict=True):
        t = rng.standard_t(2, SAMPLES)  # 2 + 2 + 1 runs of three systems
        spread = np.sqrt(squares / 2 / len(own)) * t if len(own) > 1 else 0.0
        sampled.append(np.mean(own, axis=0) + spread)
        ordered, row = sorted(sampled[-1]), figure(three, "BLEU", label, "21-35")
        assert (row.low, row.high) == pytest.approx((max(0, ordered[1]), min(100, ordered[-2])))
    baseline = figure(three, "BLEU", "good", "21-35")
    for label, samples in zip(SYSTEMS, sampled, strict=True):
        row = figure(three, "BLEU", label, "21-35")
        if label == "good":
            assert row.p is None
            continue
        differences = samples - sampled[0]
        observed = row.mean - baseline.mean
        extreme = np.abs(differences - differences.mean()) >= abs(observed) - 1e-9
        assert row.p == pytest.approx((extreme.sum() + 1) / (SAMPLES + 1))


def test_few_draws_at_a_time_give_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch, three: Report
) -> None:
    monkeypatch.setattr(significance, "CHUNK", 1_000)
    again = compare(SYSTEMS, RIGHT, [20, 30, None], metrics=["BLEU"])
    assert again.figures == [f for f in three.figures if f.metric != "TER"]


def test_several_processes_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "LINES", 100)
    bleu = by_name(RIGHT)["BLEU"]
    counted = count_runs([bleu], [GOOD[:1], WORSE[:1]])
    for (counts,), run in zip(counted, (GOOD[0], WORSE[0]), strict=True):
        assert bleu.counts and (counts["BLEU"] == bleu.counts(run)).all()


def test_attention_is_of_a_sample_of_each_bucket_and_so_of_no_other_group() -> None:
    shares = np.tile([0.1, 1.0], (len(RIGHT), 1))
    report = compare({"a": GOOD[:1]}, RIGHT, [20], extra=[[{"unattended source": shares}]])
    assert figure(report, "unattended source", "a", "21-35").mean == pytest.approx(0.1)
    for group in ("all", BEYOND):
        assert report.figure("unattended source", "a", group) is None


def test_examples_are_the_most_different_and_the_worst() -> None:
    (test,) = compare({"a": GOOD, "b": WORSE}, RIGHT).tests
    whys = [example["why"] for example in test.examples]
    assert whys == ["most different"] * 20 + ["worst"] * 10
    assert len({example["line"] for example in test.examples}) == 30
    for example in test.examples[::7]:
        i = example["line"] - 1
        assert (example["reference"], example["length"]) == (RIGHT[i], LENGTHS[i])
        assert example["translations"] == [GOOD[0][i], WORSE[0][i]]
        for text, score in zip(example["translations"], example["scores"], strict=True):
            assert score == pytest.approx(CHRF().corpus_score([text], [[RIGHT[i]]]).score)
    spreads = [abs(e["scores"][0] - e["scores"][1]) for e in test.examples[:20]]
    assert spreads == sorted(spreads, reverse=True) and spreads[-1] > 0
    means = [sum(e["scores"]) for e in test.examples[20:]]
    assert means == sorted(means)
    lengths_shown = [example["length"] for example in test.examples[:20]]
    assert min(lengths_shown) <= 10 and max(lengths_shown) > 35  # by turns of the buckets
    blank = compare({"a": [["zzz", *GOOD[0][1:]]]}, RIGHT, sources=["", *RIGHT[1:]])
    examples = blank.tests[0].examples  # nobody can translate nothing
    assert {e["why"] for e in examples} == {"worst"} and 1 not in {e["line"] for e in examples}


def test_the_paper_s_groups() -> None:
    chosen = choose_lines(6, [0, 25, 26, 100, 101, 999], [25, 100], [50, None, 76])
    assert {group.name: lines.tolist() for group, lines in chosen.items()} == {
        "0-25": [0, 1],
        "26-100": [2, 3],
        "over 100": [4, 5],
        BEYOND: [3, 4, 5],  # longer than any in the training of each
        "all": [*range(6)],
    }


@given(st.sets(st.integers(1, 200), min_size=1), st.lists(st.integers(0, 300)))
def test_each_pair_falls_into_one_bucket(bounds: set[int], lengths: list[int]) -> None:
    chosen = choose_lines(len(lengths), lengths, sorted(bounds))
    every, _ = chosen.popitem()
    assert sorted(i for lines in chosen.values() for i in lines) == list(range(len(lengths)))
    assert every.pairs == len(lengths) and all(group.pairs for group in chosen)
