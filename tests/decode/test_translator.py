"""Lines in, lines out: in order, as many, in windows, and independent of their neighbours."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.decode.translator import Translation, Translator
from nmt.errors import Exit, UserError
from nmt.modeldir import Trained
from nmt.text.vocab import EOS
from tests.decode.copying import ENDLESS, WORDS, decode, model_of, trained

lines_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join), max_size=25)


@given(lines_of_words, st.integers(1, 3), st.integers(1, 9), st.sampled_from([1, 12, 60, 999]))
def test_each_line_gets_its_own_translation_whatever_the_batches(
    lines: list[str], beam_size: int, window: int, batch_tokens: int
) -> None:
    options = decode(beam_size=beam_size, window=window, batch_tokens=batch_tokens)
    translator = Translator.of(trained(), options)
    assert translator.texts(lines) == lines
    for rows, longest in model_of(translator).batches:
        assert rows == 1 or rows * beam_size * longest <= batch_tokens


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=12))
def test_any_text_gives_as_many_lines_back(lines: list[str]) -> None:
    found = Translator.of(trained(), decode(window=5)).texts(lines)
    assert len(found) == len(lines)
    assert not any(set(text) & set("\n\r\t\u2028") for text in found)


@pytest.mark.parametrize("lines", [[], [""], ["w1", "", "  ", "w2"]])
def test_empty_lines_stay_empty_and_never_meet_the_model(lines: list[str]) -> None:
    translator = Translator.of(trained(), decode())
    assert translator.texts(lines) == [line.strip() for line in lines]
    rows = sum(rows for rows, _ in model_of(translator).batches)
    assert rows == sum(bool(line.strip()) for line in lines)


def test_the_sign_for_an_unknown_piece_may_be_forbidden() -> None:
    lines = ["w1 never-seen w2"]  # the model copies, and knows no better than the sign
    assert Translator.of(trained(), decode(unknown="allow")).texts(lines) == ["w1 <unk> w2"]
    assert Translator.of(trained(), decode(unknown="forbid")).texts(lines) == ["w1"]


def test_outputs_end_at_ratio_times_source_plus_offset(caplog: pytest.LogCaptureFixture) -> None:
    options = decode(max_length_ratio=1.5, max_length_offset=4, window=2)
    found = Translator.of(trained(), options).texts(["w1", f"{ENDLESS} w1 w2", "", ENDLESS])
    assert [len(text.split()) for text in found] == [1, 4 + 4, 0, 1 + 4]
    (message,) = caplog.messages
    assert "cut at the limit of their length: 2 (first: line 2; longest: 8 pieces)" in message


def test_outputs_stay_within_the_table_of_the_target() -> None:
    some = trained()
    some.model.target_limit = 4  # type: ignore[misc]
    found = Translator.of(some, decode()).texts([ENDLESS, "w1 w2 w3", "w1 w2 w3 w4"])
    assert found == [" ".join([ENDLESS] * 3), "w1 w2 w3", "w1 w2 w3"]


@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_too_little_memory_names_the_key(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    some = trained()

    def full(*_: object) -> None:
        if device == "CPU":
            torch.empty(2**50)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(some.model, "start", full)
    with pytest.raises(
        UserError, match=r"^a batch \(lines: 1, pieces of the longest: 2\): .*decode\.max_source$"
    ) as error:
        Translator.of(some, decode()).texts(["w1"])
    assert error.value.code == Exit.NO_MEMORY


@pytest.mark.parametrize("encoding", ["relative", "lstm"])
def test_a_real_model_translates_alike_alone_and_in_company(
    real: Callable[..., Trained], encoding: str
) -> None:
    """Also in the opposite order: padding and neighbours change nothing but the last bits."""
    model = real(f"encoding={encoding}")
    random = torch.Generator().manual_seed(0)
    lines = [
        " ".join(WORDS[i] for i in torch.randint(40, (length,), generator=random).tolist())
        for length in (3, 9, 1, 14, 2, 2, 7)
    ]

    def outcome(lines: list[str], batch_tokens: int, window: int) -> list[list[Translation]]:
        brief = {"max_length_ratio": 1.0, "max_length_offset": 3}  # nothing else ends it
        options = decode(beam_size=4, batch_tokens=batch_tokens, window=window, **brief)
        return list(Translator.of(model, options).translate(lines, 4))

    together, alone = outcome(lines, 10_000, 100), outcome(lines, 1, 1)
    turned = outcome(lines[::-1], 90, 4)[::-1]
    for other in (alone, turned):
        assert [[t.text for t in some] for some in other] == [
            [t.text for t in some] for some in together
        ]
        for some, same in zip(other, together, strict=True):
            assert [t.score for t in some] == pytest.approx([t.score for t in same], abs=1e-4)


def test_greedy_search_on_a_real_model_agrees_with_its_forward_pass(whole: Trained) -> None:
    """The best token after each prefix, computed anew from the whole prefix."""
    line = "w3 w1 w4 w1 w5"
    (found,) = Translator.of(whole, decode(beam_size=1)).translate([line])
    source, ids = torch.tensor([whole.source.ids(line)]), [1]
    while len(ids) <= 15:
        logits = whole.model(source, torch.tensor([ids]))[0, -1]
        logits[[0, 1, 3]] = float("-inf")
        ids.append(int(logits.argmax()))
        if ids[-1] == 2:
            break
    assert found[0].text.split() == whole.target.text(ids).split()


def test_a_beam_that_shrinks_ends_a_search_with_other_hypotheses(
    of_letters: Callable[..., Trained],
) -> None:
    some, lines = of_letters("encoding=absolute", shake=0.3), ["a b", "c d e f", "g h i", "b"]
    with torch.no_grad():
        some.model.output.bias[EOS] += 2  # so that outputs end
    found = [
        list(
            Translator.of(some, decode(stop=stop, alpha=1.0, max_length_offset=40)).translate(
                lines, n_best=3
            )
        )
        for stop in ("finished", "shrinking")
    ]
    assert found[0] != found[1]
