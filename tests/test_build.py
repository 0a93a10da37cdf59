"""Sizes that cannot be meant are refused before anything is made."""

from collections.abc import Callable

import pytest
import torch

from nmt import build
from nmt.checks import preflight
from nmt.config.settings import Settings
from nmt.errors import Exit, UserError


@pytest.fixture
def refusal(settings_of: Callable[..., Settings]) -> Callable[..., UserError]:
    """What `check` says."""

    def check(*words: str) -> UserError:
        with pytest.raises(UserError) as error:
            preflight.check(settings_of("trainer.device=cpu", *words))
        return error.value

    return check


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=shaw_absolute", "encoding.shaw_absolute.longest=1000000000"],  # 10^18 rows
        ["encoding=sine_spe_stochastic", "encoding.sine_spe_stochastic.waves=1000000000"],
    ],
)
def test_tables_that_cannot_even_be_described(
    refusal: Callable[..., UserError], words: list[str]
) -> None:
    error = refusal(*words)
    assert str(error) == f"{words[1]}: no memory holds what it asks for; lower it"
    assert error.code == Exit.NO_MEMORY


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.join=2", "encoding=spr_relative"], "joined lines have no columns"),
        (["data.join=2", "data.join_within=heads"], "data.join_within=heads: no column with an"),
        (
            [
                "encoding=learned",
                "encoding.learned.size=120",
                "data.join=2",
                "data.join_length=150",
            ],
            "encodes at most 120 tokens, fewer than data.join_length=150 and eos",
        ),
        (["data.bpe_dropout=0.1", "segmenter=unigram"], "segmenter.kind=unigram has none; data.s"),
        (["data.subword_alpha=0.1"], "segmenter.kind=bpe has none; data.bpe_dropout is its way"),
        (["data.bpe_dropout=0.1", "encoding=spr_relative"], "but the encoding reads heads"),
        (
            ["data.subword_alpha=0.1", "segmenter=unigram", "encoding=spr_relative"],
            "data.subword_alpha=0.1: text that is segmented at random has no integers per word",
        ),
        (
            ["encoding=spr_relative", "decode.target_language=en"],
            "its piece has no number in column heads",
        ),
    ],
)
def test_what_text_and_encodings_cannot_have_is_refused(
    overrides: list[str], message: str, settings_of: Callable[..., Settings]
) -> None:
    with pytest.raises(UserError, match=message):
        preflight.check(settings_of(*overrides))


def test_a_language_takes_a_position(settings_of: Callable[..., Settings]) -> None:
    def check(size: int, *more: str) -> None:
        table = ["encoding=learned", f"encoding.learned.size={size}"]
        preflight.check(settings_of("data.max_length=30", "data.train_longest=10", *table, *more))

    check(31)
    check(32, "decode.source_language=en", "decode.target_language=en")
    for side, other in (("target", "encoder"), ("source", "decoder")):
        language = f"decode.{side}_language=en"
        check(31, language, f"encoding.learned.where={other}")
        with pytest.raises(UserError, match=r"at most 31 tokens, .* data\.max_length=29$"):
            check(31, language)


@pytest.mark.parametrize(
    "name",
    [
        *("absolute", "relative", "lstm", "learned", "complex_order"),
        *("fope", "conv_spe", "sine_spe_stochastic", "kerple_log"),
    ],
)
def test_a_model_whose_weights_are_read_draws_none(
    name: str, settings_of: Callable[..., Settings]
) -> None:
    settings, before = settings_of(f"encoding={name}"), torch.get_rng_state()
    with build.Uninitialised():
        build.transformer(settings, 20, 20)
    assert torch.equal(torch.get_rng_state(), before)
    build.transformer(settings, 20, 20)
    assert not torch.equal(torch.get_rng_state(), before)
