"""The candidate that is most like all of them comes first, and says how much."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import sentence_chrf

from nmt.config.settings import Settings, with_decode
from nmt.decode.engine import Hypothesis, Source
from nmt.decode.translator import Translation, Translator, rank_by_utility
from nmt.errors import UserError
from nmt.evaluation.describe import describe_search
from nmt.modeldir import Trained
from tests.decode.copying import decode, trained

LINES = ["w3 w1 w4", "", "w1 w5 w9 w2 w6 w5", "w3"]
texts = st.lists(st.text("abc ", max_size=8), min_size=1, max_size=6)


@given(texts)
def test_candidates_are_ranked_by_their_mean_chrf(candidates: list[str]) -> None:
    """Against all pairs by sacreBLEU's own function; what occurs twice counts twice."""
    means = [
        sum(sentence_chrf(one, [other]).score for other in candidates) / len(candidates)
        for one in candidates
    ]
    found = rank_by_utility(candidates)
    assert {candidates[place] for place, _ in found} == set(candidates)
    assert len(found) == len(set(candidates))
    for place, utility in found:
        assert place == candidates.index(candidates[place])
        assert utility == pytest.approx(means[place])
    utilities = [utility for _, utility in found]
    assert utilities == sorted(utilities, reverse=True)


def translations(some: Trained, n_best: int = 1, **changes: Any) -> list[list[Translation]]:
    options = decode(**{"max_length_ratio": 1.0, "max_length_offset": 3, **changes})
    return list(Translator.of(some, options).translate(LINES, n_best))


WAYS: list[dict[str, Any]] = [{"beam_size": 6}, {"method": "sample", "top_k": 5}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_translator_ranks_what_the_search_finds(whole: Trained, way: dict[str, Any]) -> None:
    candidates = translations(whole, 6, **way)
    chosen = translations(whole, 3, mbr=6, **way)
    for line, some, best in zip(LINES, candidates, chosen, strict=True):
        if not line:
            assert best == [Translation("", 0.0)]
            continue
        choices = rank_by_utility([t.text for t in some])[:3]
        assert best == [some[place]._replace(score=utility) for place, utility in choices]
    assert any(some[0].text != best[0].text for some, best in zip(candidates, chosen, strict=True))
    assert [each[:1] for each in chosen] == translations(whole, 1, mbr=6, **way)


class Consensus:
    """An engine whose first hypothesis of a line was cut, while its others agree and are whole."""

    source_limit: int | None = None
    target_limit: int | None = None
    columns: Set[str] = frozenset()
    column_ranges: Mapping[str, range] = {}
    parallel_batches = most_workers = 1

    def workers(self, count: int) -> NoReturn:
        raise NotImplementedError

    def search(self, sources: Sequence[Source], n_best: int) -> list[list[Hypothesis]]:
        cut, whole = Hypothesis([4, 5, 6], -1.0, -1.0, False), Hypothesis([7], -2.0, -2.0, True)
        return [[cut, *[whole] * (n_best - 1)] for _ in sources]

    def cross_attention(self, pairs: object) -> NoReturn:
        raise NotImplementedError


def test_any_engine_will_do_and_only_the_choice_is_told(caplog: pytest.LogCaptureFixture) -> None:
    options = decode(method="sample", mbr=3, max_length_ratio=0.0, max_length_offset=3)
    translator = Translator(trained(), options, Consensus())
    assert translator.texts(["w1", "", "w2 w3"]) == ["w3", "", "w3"]
    assert not caplog.records
    first = Translator(trained(), decode(method="sample"), Consensus())
    assert first.texts(["w1"]) == ["w0 w1 w2"]
    assert "no finite score: 1 (first: line 1; longest: 3" in caplog.text


def test_too_few_candidates_are_refused(settings_of: Callable[..., Settings]) -> None:
    with pytest.raises(UserError, match=r"^decode\.mbr=9: the beam holds 4; raise decode\.beam"):
        decode(mbr=9, beam_size=4)
    settings = with_decode(settings_of(), {"mbr": 9, "method": "sample"})
    settings.decode.check_n_best(9, "n=9", "give beam_size")
    with pytest.raises(UserError, match=r"^n=10: decode\.mbr=9 has no more candidates; raise it"):
        settings.decode.check_n_best(10, "n=10", "give beam_size")
    assert describe_search(settings).endswith(", mbr=9")
