"""Trainable parameters at base size (6+6 layers, 8 heads, width 512), as papers count them."""

import re
from collections.abc import Callable

import pytest

from tests.composing import few_representatives
from tests.pages import text_of

NOTHING = (
    *("none", "absolute", "mvpe", "shape", "cape", "randomized", "ldpe", "lrpe"),
    *("position_infused", "relative_sinusoidal", "relative_sinusoidal_returnn", "rotary"),
    *("rotary_partial", "xpos", "alibi", "alibi_directional", "sandwich", "disan", "graph_bert"),
    *("stick_breaking", "sigmoid_attention", "wavelet", "yarn", "sliding_window", "gaussian"),
    *("p_rope", "fope"),
)
COUNTS = {
    **dict.fromkeys(NOTHING, 0),
    "synthesizer": 1_597_440,
    "synthesizer_random": 6_291_456,
    "synthesizer_factorised": 393_216,
    "learned": 1_048_576,
    "axial": 32_768,
    "floater": 1_071_104,
    "floater_cross": 1_606_656,
    "relative": 50_688,
    "relative_key": 25_344,
    "relative_value": 25_344,
    "relative_per_head": 405_504,
    "relative_tied": 25_344,
    "relative_absolute": 50_688,
    "shaw_absolute": 15_668_736,  # 2 t^2 d l with t = 101; with t = 100, below, as in the survey
    "t5": 512,
    "huang_1": 12_384,
    "huang_2": 24_672,
    "huang_3": 1_579_008,
    "huang_4": 1_579_008,
    "deberta": 6_553_600,
    "transformer_xl": 3_147_776,
    "transformer_xl_untied": 3_158_016,
    "da_transformer": 192,
    "tener": 12_288,
    "spr_relative": 25_344 + 25_344,  # in the encoder; the decoder has Shaw's
    "tupe_relative": 2_101_760,
    "tupe_absolute": 2_101_248,
    "sine_spe": 36_864,
    "sine_spe_stochastic": 36_864,
    "kerple_log": 32,
    "kerple_power": 32,
    "fire": 3_960,
    "dape": 9_728,
    "fox": 49_248,
    "cable": 49_248,
    "path_attention": 460_896,
    "selective_rope": 307_200,
    "ssmax": 96,
    "cope": 49_152,
    "irpe": 25_344,
    "irpe_qkv": 76_032,
    "composite": 14_688,
    "diet_absolute": 2_097_152,
    "gru": 3_151_872,
    "rr_transformer": 3_151_872 + 50_688,
    "lstm": 20_472_832,
    "spr_absolute": 524_288,
    "xl_pe": 524_288,
    "tpe": 512 // (2 * 32),
    "per_language": (2 + 1) * 1024 * 512,
    "graformer": 2 * (8 + 1) * 8,
    "laplacian": (8 + 1) * 512,
    "structural": 2 * 6 * 64 * 64 + (2 * 20 + 3) * 64,
    "graph_transformer": 4 * 6 * 64 * 512 + 6 * 64 * (2 * 64 + 2) + (2 * 20 + 3) * 64,
}
UNREAD = {
    "tener": 12,
    "gaussian": 24,
    "synthesizer": 12,
    "synthesizer_random": 24,
    "synthesizer_factorised": 24,
}
PROJECTION = 512 * 512 + 512  # of queries or keys; so many are left out
COMPLEX = ("complex_order", "model.feedforward=real")
WORDS: dict[tuple[str, ...], int] = {
    ("shaw_absolute", "encoding.shaw_absolute.longest=100"): 15_360_000,
    ("huang_4", "encoding.huang_4.per_head=false"): 197_376,
    ("gru", "encoding.gru.bidirectional=true"): 5_252_608,
    ("convolution", "encoding.convolution.width=5"): 2 * 5 * 512 * 512,
    ("structural", "encoding.structural.path=cnn"): 51_904 + 6 * (5 * 64 * 64 + 64),
    ("structural", "encoding.structural.path=attention"): 51_904 + 6 * (3 * 64 * 64 + 128 * 65),
    (*COMPLEX, "encoding.complex_order.phase=false"): 2 * 8 * 512,  # of 8 words on either side
    (*COMPLEX, "encoding.complex_order.frequency=shared"): 2 * (8 + 1) * 512,
}


@pytest.mark.parametrize(
    "option",
    [pytest.param(o, marks=[pytest.mark.slow] * (o not in few_representatives())) for o in COUNTS],
)
def test_parameters_at_base_size(option: str, added_at_base: Callable[..., int]) -> None:
    left_out = UNREAD.get(option, 0) * PROJECTION
    assert added_at_base(f"encoding={option}") == COUNTS[option] - left_out


def test_the_survey_s_table_has_these_counts() -> None:
    """But for an option whose other entries, which the table leaves out, learn something, too."""
    table = text_of("docs/encodings.md").partition("## The survey's Table 1\n")[2]
    row = r"^\| [^|]*\| `(\w+)[^|`]*` \|.* \| ([\d,]+)[^|]*\|$"
    rows = re.findall(row, table, flags=re.M)
    counts = {option: int(count.replace(",", "")) for option, count in rows if option in COUNTS}
    for option, other in (("per_language", "learned"), ("spr_relative", "relative")):
        assert counts.pop(option) == COUNTS[option] - COUNTS[other] // 2
    assert counts == {option: COUNTS[option] for option in counts}
    assert len(counts) > 40


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_parameters_of_variants(words: tuple[str, ...], added_at_base: Callable[..., int]) -> None:
    assert added_at_base(f"encoding={words[0]}", *words[1:]) == WORDS[words]


def test_complex_order_learns_per_word(added_at_base: Callable[..., int]) -> None:
    """Two further tables of vocab x dim per side, and complex feed-forward sublayers."""
    words = ("encoding=complex_order", "model.feedforward=real")
    grown = added_at_base(*words, vocab=108) - added_at_base(*words, vocab=8)
    assert grown == 2 * (100 + 100) * 512
