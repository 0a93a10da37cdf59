"""Log-probabilities of given translations: those of decoding token by token, for every batch."""

import math
from collections.abc import Callable

import pytest
import torch

from nmt.api import score
from nmt.decode.notes import Notes
from nmt.decode.score import score_translations
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained
from nmt.text.vocab import BOS, END

TABLE = ("encoding=learned", "encoding.learned.size=4", "data.max_length=3")
SOURCES = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1 w2"]
TARGETS = ["w9", "w8 w7 w6 w5", "w3 w3 unheard"]


@pytest.mark.parametrize(
    ("encoding", "batch_tokens"), [("relative", 8), ("lstm", 4000), ("ldpe", 8)]
)
def test_it_is_what_decoding_token_by_token_says(
    real: Callable[..., Trained], encoding: str, batch_tokens: int
) -> None:
    known = real(f"encoding={encoding}")
    found = score(known, SOURCES, TARGETS, batch_tokens=batch_tokens)
    for source, target, given in zip(SOURCES, TARGETS, found, strict=True):
        ids = known.target.ids(target)
        read = torch.tensor([known.source.ids(source)])
        lengths = torch.tensor([len(ids)]) if known.model.needs_lengths else None
        with torch.inference_mode():
            state, expected = known.model.start(read, lengths=lengths), []
            for before, token in zip([BOS, *ids], ids, strict=False):
                logits = known.model.step(torch.tensor([before]), state)
                expected.append(float(logits[0].double().log_softmax(0)[token]))
        assert given.log_probs == pytest.approx(expected, abs=1e-4)
        assert given.log_prob == pytest.approx(sum(expected), abs=1e-3)
        assert given.length == len(target.split()) + 1 == len(given.pieces)
    assert found[2].pieces == ["w3", "w3", "<unk>", END]


def test_a_translation_may_be_empty(real: Callable[..., Trained]) -> None:
    (given,) = score(real("encoding=absolute"), ["w1"], [""])
    assert given.pieces == [END] and given.length == 1 and -math.inf < given.log_prob < 0
    assert score(real("encoding=absolute"), [], []) == []


@pytest.mark.parametrize(
    ("sources", "targets", "says"),
    [
        (["w1"], ["w1", "w2"], "the text: only 1 lines, but translations has more"),
        (["w1", "w1 w2 w3 w4 w5"], ["w1", "w1"], r"1 \(first: line 2; longest: 5 pieces"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    real: Callable[..., Trained], sources: list[str], targets: list[str], says: str
) -> None:
    known = real(*TABLE)
    with pytest.raises(UserError, match=says) as refused:
        score(known, sources, targets)
    assert refused.value.code == Exit.DATA


def test_sources_of_unknown_pieces_alone_are_counted(
    real: Callable[..., Trained], caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes()
    sources = ["w1", "unheard of", "w1 unheard", ""]
    list(score_translations(real("encoding=absolute"), sources, ["w2"] * 4, window=2, notes=notes))
    assert notes.counts["unknown"][:2] == [1, 2]
    assert "unknown pieces alone: 1 " in caplog.text
