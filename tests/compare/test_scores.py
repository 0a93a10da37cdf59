"""Counts that add up to what sacreBLEU says, for any subset of lines."""

import sys

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.compare.scores import Scorer, length_ratio, parse_metrics, scorers, select
from nmt.errors import UserError
from tests.compare.made_up import noisy, references


def by_name(found: list[Scorer]) -> dict[str, Scorer]:
    return {scorer.name: scorer for scorer in found}


def test_subsets_score_as_sacrebleu_scores_them() -> None:
    right = references(60)
    wrong = noisy(right, 0.4)
    found = by_name(scorers(right, "en", None, 100, 1))
    for name, public in (("BLEU", BLEU()), ("chrF2", CHRF()), ("TER", TER())):
        counts = found[name].counts(wrong)
        for lines in (range(60), range(0, 60, 7), [5]):
            expected = public.corpus_score([wrong[i] for i in lines], [[right[i] for i in lines]])
            summed = counts[list(lines)].sum(axis=0)
            assert found[name].score(summed) == pytest.approx(expected.score, abs=1e-9)
            bare = str(public.get_signature()).replace("nrefs:1", "nrefs:1|bs:100|seed:1")
            assert found[name].signature == bare


def test_moses_splits_what_the_other_metrics_leave_whole() -> None:
    right = ["He isn't in Mr. Smith's well-known (old) house, is he?"]
    wrong = ["He is not in Mr. Smith's well-known old house, is he?"]
    tokenised = "He isn 't in Mr. Smith 's well-known ( old ) house , is he ?"
    other = "He is not in Mr. Smith 's well-known old house , is he ?"
    found = by_name(scorers(right, "en", None, 100, 1))
    publics = {"BLEU-moses": BLEU(tokenize="none", force=True), "TER-moses": TER()}
    for name, public in publics.items():
        expected = public.corpus_score([other], [[tokenised]]).score
        assert found[name].score(found[name].counts(wrong)[0]) == pytest.approx(expected)
    assert found["TER"].score(found["TER"].counts(wrong)[0]) != pytest.approx(expected)


def test_chinese_is_split_into_characters() -> None:
    found = by_name(scorers(["我们在这里。"], "zh", None, 100, 1))
    assert not {"BLEU-moses", "TER-moses"} & set(found)  # Moses takes the sentence for one word
    for name in ("BLEU", "TER"):
        score = found[name].score(found[name].counts(["我们在那里。"])[0])
        assert 0 < score < 100
    assert "tok:zh" in found["BLEU"].signature
    assert "asian:yes" in found["TER"].signature


def test_case_counts_in_bleu_alone() -> None:
    found = by_name(scorers(["The Old Man Sleeps."], "en", None, 100, 1))
    scores = {n: s.score(s.counts(["the old man sleeps."])[0]) for n, s in found.items()}
    assert scores["BLEU"] < 50
    assert scores["BLEU-moses"] < 50
    assert scores["TER"] == scores["TER-moses"] == 0


def test_length_ratio_counts_tokens() -> None:
    bleu = scorers(["a b c .", "a b"], "en", None, 100, 1)[0]
    assert length_ratio(bleu.counts(["a b c.", ""])) == pytest.approx(4 / 6)
    assert length_ratio(np.zeros((1, 10))) is None


def test_a_tokenizer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if "mecab" in m.lower()]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(UserError, match="--tokenize ja-mecab: ") as caught:
        scorers(["a"], "en", "ja-mecab", 100, 1)
    assert "\n" not in str(caught.value)


def test_exact_match_is_the_share_of_equal_lines_after_normalising_white_space() -> None:
    right = ["a b  c", " d e", "F", "g", ""]
    said = ["a\u00a0b c ", "d e", "f", "g h", " \t"]
    exact = by_name(scorers(right, "en", None, 100, 1))["exact"]
    counts = exact.counts(said)
    assert counts[:, 0].tolist() == [1, 1, 0, 0, 1]
    assert exact.score(counts.sum(axis=0)) == pytest.approx(60)
    assert exact.score(counts[2:4].sum(axis=0)) == 0
    assert "bs:100|seed:1" in exact.signature
    with pytest.raises(ValueError, match="longer"):
        exact.counts(said[:3])


def test_metrics_are_chosen_by_name_in_order() -> None:
    every = scorers(["a"], "en", None, 100, 1)
    assert [s.name for s in select(every, None)] == ["BLEU", "BLEU-moses", "chrF2", "TER"]
    assert parse_metrics("Exact,bleu,exact") == ["exact", "BLEU"]
    assert [s.name for s in select(every, ["exact", "BLEU"])] == ["exact", "BLEU"]
    assert parse_metrics(None) is None
    with pytest.raises(UserError, match="no metric 'meteor'; choose from BLEU, BLEU-moses"):
        parse_metrics("BLEU,meteor")
    with pytest.raises(UserError, match="BLEU-moses: there is none for this target language"):
        select(scorers(["我"], "zh", None, 100, 1), ["BLEU-moses"])
