"""Counts that add up to what sacreBLEU says, for any subset of lines."""

import math
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.errors import Exit, UserError
from nmt.evaluation import metrics
from nmt.evaluation.metrics import REPETITION, Floats, Metric, References, is_unspaced, make_metrics
from tests.evaluation.made_up import by_name, noisy, references, score


def counts_of(metric: Metric, lines: list[str]) -> Floats:
    assert metric.counts
    return metric.counts(lines)


MOSES = ["BLEU", "BLEU-moses", "TER", "TER-moses"]


def test_subsets_score_as_sacrebleu_scores_them() -> None:
    right = references(60)
    wrong = noisy(right, 0.4)
    scorers = by_name(right)
    for name, public in (("BLEU", BLEU()), ("chrF2", CHRF()), ("TER", TER())):
        counts = counts_of(scorers[name], wrong)
        for lines in (range(60), range(0, 60, 7), [5]):
            expected = public.corpus_score([wrong[i] for i in lines], [[right[i] for i in lines]])
            summed = counts[list(lines)].sum(axis=0)
            assert scorers[name].value(summed) == pytest.approx(expected.score, abs=1e-9)
            bare = str(public.get_signature()).replace("nrefs:1", "nrefs:1|bs:100|seed:1")
            assert scorers[name].signature == bare


def test_moses_splits_what_the_other_metrics_leave_whole() -> None:
    right = ["He isn't in Mr. Smith's well-known (old) house, is he?"]
    wrong = ["He is not in Mr. Smith's well-known old house, is he?"]
    tokenised = "He isn 't in Mr. Smith 's well-known ( old ) house , is he ?"
    other = "He is not in Mr. Smith 's well-known old house , is he ?"
    scorers = by_name(right, names=MOSES)
    publics = {"BLEU-moses": BLEU(tokenize="none", force=True), "TER-moses": TER()}
    for name, public in publics.items():
        expected = public.corpus_score([other], [[tokenised]]).score
        assert score(scorers[name], wrong) == pytest.approx(expected)
    assert score(scorers["TER"], wrong) != pytest.approx(expected)


def test_chinese_is_split_into_characters() -> None:
    scorers = by_name(["我们在这里。"], "zh")
    for name in ("BLEU", "TER"):
        assert 0 < score(scorers[name], ["我们在那里。"]) < 100
    assert "tok:zh" in scorers["BLEU"].signature
    assert "asian:yes" in scorers["TER"].signature
    with pytest.raises(UserError, match="TER-moses: there is none for this target language"):
        by_name(["我"], "zh", ["TER-moses"])


def test_a_new_metric_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(lines: Sequence[str]) -> Floats:
        return np.array([[len(line.split()), 1] for line in lines], np.float64)

    scorer = metrics.Scorer(count, metrics.ratio, "words")
    words = metrics.ListedMetric("words of a line", lambda references: scorer)
    monkeypatch.setitem(metrics.METRICS, "Words", words)
    assert metrics.names_of_metrics("zh", default=True)[-1] == "Words"
    metric, *_ = make_metrics(["words"], References(["a b"]))
    assert (metric.name, metric.title, score(metric, ["a b c", "d"])) == ("Words", words.title, 2)


def test_a_tokenizer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if "mecab" in m.lower()]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(UserError, match=r"ja-mecab: .*; pip install sacrebleu") as caught:
        make_metrics(["BLEU"], References(["a"], tokenize="ja-mecab"))
    assert "\n" not in str(caught.value) and caught.value.code == Exit.UNAVAILABLE


def test_exact_match_is_the_share_of_equal_lines_after_normalising_white_space() -> None:
    right = ["a b  c", " d e", "F", "g", ""]
    said = ["a\u00a0b c ", "d e", "f", "g h", " \t"]
    exact = by_name(right)["exact"]
    counts = counts_of(exact, said)
    assert counts[:, 0].tolist() == [1, 1, 0, 0, 1]
    assert exact.value(counts.sum(axis=0)) == pytest.approx(60)
    assert exact.value(counts[2:4].sum(axis=0)) == 0
    with pytest.raises(ValueError, match="longer"):
        counts_of(exact, said[:3])


def test_repetitions_by_hand() -> None:
    def share(*lines: str) -> float:
        return score(REPETITION, lines)

    assert share("a b c d a b c d") == pytest.approx(1 / 5)  # abcd again, of 5
    assert share("a a a a a a") == pytest.approx(2 / 3)
    assert share("a b c d e f", "a b c d e f") == 0  # lines are apart
    assert share("a b c d a b c d", "a b c d e", "x y") == pytest.approx(1 / 7)
    assert math.isnan(share()) and math.isnan(share("", "one two three"))


def test_scripts_without_spaces_are_told_from_others() -> None:
    for text in ("我们在这里。", "ここにいます。", "สวัสดีครับ", "မြန်မာ", "我们 use Python 写程序的"):
        assert is_unspaced([text]) == (text.count("e") == 0)
    for text in ("We are here.", "Мы здесь.", "우리는 여기 있다", "हम यहाँ हैं", "", "12 %"):
        assert not is_unspaced([text])
