"""From lines to a scored test: signs, examples, the paper's numbers, attention, and runs."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from nmt.compare import examples
from nmt.compare.attention.observe import SAMPLE, sampled, with_coverage, with_unattended
from nmt.compare.attention.statistics import SentenceCoverage
from nmt.compare.diagnosis import diagnose
from nmt.compare.published import with_published
from nmt.compare.report import PaperTable, ScoredTest, trained_run
from nmt.compare.scoring import Bootstrap, TranslatedTest
from nmt.errors import UserError
from tests.compare.made_up import lengths, noisy, references

pytestmark = pytest.mark.usefixtures("each_run_counted_once")
RIGHT = references(120)
SOURCES = [f"source {i} " + "x " * len(line.split()) for i, line in enumerate(RIGHT)]
LENGTHS = lengths(RIGHT)
HOW = Bootstrap(bounds=[12, 25, 100], samples=40, seed=1, jobs=1)
TWO = [[noisy(RIGHT, 0.2, 1), noisy(RIGHT, 0.2, 2)], [noisy(RIGHT, 0.5, 3)]]


def translated(**changes: Any) -> TranslatedTest:
    values: dict[str, Any] = {
        "name": "newstest_all",
        "about": "made up",
        "sources": SOURCES,
        "references": RIGHT,
        "parts": None,
        "language": "en",
        "lengths": LENGTHS,
        "unit": "words",
        "longest_trained": [25, None],
        "hypotheses": TWO,
        "metrics": ["BLEU-moses", "TER-moses", "BLEU", "TER"],
    }
    return TranslatedTest(**(values | changes))


@pytest.fixture(scope="module")
def two() -> ScoredTest:
    return diagnose(translated(), HOW)


def test_the_metrics_that_are_asked_for(two: ScoredTest) -> None:
    assert [metric.name for metric in two.metrics] == ["BLEU-moses", "TER-moses", "BLEU", "TER"]
    assert all("bs:40|seed:1" in metric.signature for metric in two.metrics)
    assert [row.name for row in two.rows] == ["0-12", "13-25", "26-100", "over 100", "all"]
    assert (two.longest, two.unit) == (max(LENGTHS), "words")
    assert sum(row.pairs for row in two.rows[:-1]) == two.rows[-1].pairs == len(RIGHT)
    assert [len(cell.scores["TER"].seeds) for cell in two.rows[-1].cells] == [2, 1]


def test_signs_of_under_translation_are_of_each_bucket() -> None:
    again = ["a b c d a b c d" if n > 25 else line for n, line in zip(LENGTHS, RIGHT, strict=True)]
    half = [" ".join(line.split()[: len(line.split()) // 2]) for line in RIGHT]
    parts = [
        ([s], [" ".join(w[: len(w) // 2]), " ".join(w[len(w) // 2 :])])
        for s, w in ((source, line.split()) for source, line in zip(SOURCES, RIGHT, strict=True))
    ]
    found = diagnose(translated(hypotheses=[[again], [RIGHT, half]], parts=parts), HOW)
    short, long = found.rows[0].cells, found.rows[2].cells
    assert short[0].signs and long[0].signs and long[1].signs
    assert long[0].signs.repeated == pytest.approx(1 / 5)  # five 4-grams, one of them again
    assert short[0].signs.repeated == short[0].signs.repeated_reference
    assert long[1].signs.dropped_half == pytest.approx(0.5)  # one run of two drops all
    assert [cell.signs for cell in found.rows[3].cells] == [None, None]  # empty
    assert long[0].signs.unattended is None


def test_without_records_nothing_is_said_of_halves(two: ScoredTest) -> None:
    signs = [cell.signs for row in two.rows for cell in row.cells if cell.signs]
    assert len(signs) == 8 and {sign.dropped_half for sign in signs} == {None}


def test_examples_are_the_most_different_and_the_worst(two: ScoredTest) -> None:
    whys = Counter(example.why for example in two.examples)
    assert whys == {"most different": examples.DIFFERENT, "worst": examples.WORST}
    assert len({example.line for example in two.examples}) == 30
    assert {example.bucket for example in two.examples[:20]} == {"0-12", "13-25", "26-100"}
    for example in two.examples:
        i = example.line - 1
        assert (example.source, example.reference) == (SOURCES[i], RIGHT[i])
        assert example.length == LENGTHS[i]
        assert [h.text for h in example.hypotheses] == [TWO[0][0][i], TWO[1][0][i]]
    spreads = [abs(e.hypotheses[0].score - e.hypotheses[1].score) for e in two.examples[:20]]
    assert spreads == sorted(spreads, reverse=True) and spreads[-1] > 0
    means = [sum(h.score for h in e.hypotheses) for e in two.examples[20:]]
    assert means == sorted(means)


def test_sentence_scores_are_sacrebleu_s(two: ScoredTest) -> None:
    from sacrebleu.metrics.chrf import CHRF

    for example in two.examples[::7]:
        for hypothesis in example.hypotheses:
            expected = CHRF().corpus_score([hypothesis.text], [[example.reference]]).score
            assert hypothesis.score == pytest.approx(expected)


def test_equal_systems_have_no_most_different_lines() -> None:
    same = diagnose(translated(hypotheses=[TWO[0], TWO[0]]), HOW)
    assert {example.why for example in same.examples} == {"worst"}
    blank = ["", *SOURCES[1:]]
    bad = [[["zzz", *TWO[0][0][1:]]], [TWO[1][0]]]
    found = diagnose(translated(sources=blank, hypotheses=bad), HOW)
    assert 1 not in {example.line for example in found.examples}  # nobody can translate nothing


def test_turns_give_every_bucket_its_share() -> None:
    groups = {"a": list(range(10)), "b": [10], "c": [11, 12, 13]}
    keys = [float(i) for i in range(14)]
    assert examples.round_robin(groups, keys, 7) == [0, 1, 2, 10, 11, 12, 13]
    assert examples.round_robin(groups, [-k for k in keys], 3) == [13, 10, 9]
    assert examples.round_robin({"a": []}, [], 3) == []


def test_the_paper_s_numbers_stand_in_their_cells(two: ScoredTest) -> None:
    table = PaperTable("Table 2", "", "newstest_all", [1, 0], ["BLEU-moses", "TER-moses"], True)
    assert with_published(two, table, ["absolute 100", None]) == two  # other buckets
    names = ["0-25", "26-50", "51-75", "76-100", "over 100"]
    rows = [replace(two.rows[0], name=name) for name in names] + [two.rows[-1]]
    found = with_published(replace(two, rows=rows), table, ["absolute 75", "unknown to the paper"])
    bleu = [row.cells[0].scores["BLEU-moses"].published for row in found.rows]
    assert bleu == [31.7, 32.0, 31.2, 25.9, 15.3, None]
    assert found.rows[4].cells[0].scores["TER-moses"].published == 74.5
    assert found.rows[4].cells[0].scores["BLEU"].published is None
    assert all(s.published is None for row in found.rows for s in row.cells[1].scores.values())
    only = replace(table, systems=[1])
    assert with_published(replace(two, rows=rows), only, ["absolute 75", None]).rows == rows


def test_samples_are_fixed_and_hold_no_empty_line(two: ScoredTest) -> None:
    for row in two.rows[:3]:
        inside = [i for i, n in enumerate(LENGTHS) if row.low <= n <= (row.high or n)]
        lines = sampled(inside, SOURCES, seed=1)
        assert len(lines) == min(SAMPLE, len(inside)) and set(lines) <= set(inside)
        assert lines == sorted(lines) == sampled(inside, SOURCES, seed=1)
        assert lines != sampled(inside, SOURCES, seed=2)
    blank = ["" if i % 2 else line for i, line in enumerate(SOURCES)]
    assert all(i % 2 == 0 for i in sampled(range(len(blank)), blank, seed=1))


def test_what_was_seen_is_put_in_its_place(two: ScoredTest) -> None:
    found = with_unattended(two, 1, {"13-25": 0.25, "over 100": None})
    shares = [[c.signs and c.signs.unattended for c in row.cells] for row in found.rows]
    assert shares == [[None, None], [None, 0.25], [None, None], [None, None], [None, None]]
    some = replace(two, examples=two.examples[:2])
    seen = [SentenceCoverage(["a", "b"], [0.5, 1.5]), SentenceCoverage(["c"], [1.0])]
    others = [SentenceCoverage(["a", "b"], [1.0, 2.0]), SentenceCoverage(["other"], [3.0])]
    twice = with_coverage(with_coverage(some, 0, seen), 1, others)
    assert [example.pieces for example in twice.examples] == [["a", "b"], ["c"]]
    coverage = [[h.coverage for h in example.hypotheses] for example in twice.examples]
    assert coverage == [[[0.5, 1.5], [1.0, 2.0]], [[1.0], None]]  # other pieces are not comparable


def test_learning_curves_come_from_the_metrics() -> None:
    lines = [
        {"kind": "train", "step": 2, "perplexity": 90.0, "lr": 0.1, "tokens_per_second": 10.0},
        {"kind": "skipped", "step": 3, "lr": 0.1, "lines": [4]},
        {"kind": "train", "step": 4, "perplexity": 70.0, "lr": 0.2, "tokens_per_second": 30.0,
         "seconds": 5.5},
        {"kind": "dev", "step": 4, "perplexity": 80.0, "lr": 0.2, "seconds": 5.5},
        {"kind": "train", "step": 6, "perplexity": 60.0, "lr": 0.2, "tokens_per_second": 20.0,
         "seconds": 7.0},
        {"kind": "dev", "step": 6, "perplexity": 85.0, "lr": 0.2, "seconds": 7.0},
    ]  # fmt: skip
    run = trained_run("runs/x", 3, 6, lines)
    assert (run.run, run.seed, run.step, run.seconds) == ("runs/x", 3, 6, 7.0)
    assert (run.tokens_per_second, run.dev_perplexity) == (20.0, 80.0)
    assert (run.curve.steps, run.curve.train) == ([2, 4, 6], [90.0, 70.0, 60.0])
    assert (run.curve.dev_steps, run.curve.dev) == ([4, 6], [80.0, 85.0])
    assert run.curve.rates == [0.1, 0.2, 0.2]
    unread = trained_run("runs/y", 1, 6, [])
    assert (unread.step, unread.seconds, unread.dev_perplexity) == (6, None, None)
    assert unread.tokens_per_second is None


def test_a_metric_that_the_language_has_not_is_refused() -> None:
    with pytest.raises(UserError, match="BLEU-moses: there is none for this target language"):
        diagnose(translated(language="zh"), HOW)
