"""What two encodings of one site mean to each other, and which cannot stand side by side."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor

from nmt import build
from nmt.checks import example, preflight
from nmt.checks.card import card
from nmt.config.settings import Settings
from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.encodings.registry import create
from nmt.encodings.site import Encodings
from nmt.errors import UserError
from nmt.model.layers import DecoderLayer, EncoderLayer
from nmt.model.transformer import Transformer
from tests.fast import fast_first

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

WITH_ROTARY = {  # whether both know distances alone
    "relative": False, "relative_value": True, "relative_sinusoidal": False, "huang_1": True,
    "huang_2": True, "huang_3": False, "huang_4": False, "tener": False, "transformer_xl": False,
    "da_transformer": True, "conv_spe": False, "cope": False, "irpe": False, "alibi": True,
    "t5": True, "kerple_log": True, "lstm": True, "xpos": True, "sine_spe": False,
    "deberta": False, "composite": False, "complex_order": False, "absolute": False,
}  # fmt: skip


def shifted(model: Transformer, ids: Ids) -> float:
    """By how much logits change when all positions are five later."""
    source, target = ids(2, 6), ids(2, 7, seed=3)
    columns = example.columns(model.entries, source)
    before = model(source, target, columns)
    for site in model.sites.values():
        for e in site:
            e.positions = Index(start=5)
    return float((model(source, target, columns) - before).detach().abs().max())


@pytest.mark.parametrize("other", WITH_ROTARY)
@pytest.mark.parametrize("order", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_turned_queries_beside_what_is_not_turned(
    other: str, order: int, tiny: Make, ids: Ids
) -> None:
    last = other == "sine_spe"  # or it is refused
    pair = ["rotary", other][:: 1 if last else order]
    model = tiny(f"encoding=[{','.join(pair)}]")
    assert model.encoder_encodings.relative == WITH_ROTARY[other]
    shift = shifted(model, ids)
    assert shift < 1e-5 if WITH_ROTARY[other] else shift > 1e-3


@pytest.mark.parametrize(
    ("layout", "partial", "relative"),
    [("interleaved", 1.0, True), ("interleaved", 0.5, True), ("halves", 1.0, False)],
)
def test_turns_in_other_planes_do_not_commute(
    layout: str, partial: float, relative: bool, settings_of: Callable[..., Settings], ids: Ids
) -> None:
    settings = settings_of("encoding=none", "model.heads=1")
    other = {"use": "rotary", "layout": layout, "partial": partial}
    settings.encoding = {"rotary": {}, "other": other}
    torch.manual_seed(0)
    model = build.transformer(settings, 30, 30).eval()
    assert model.encoder_encodings.relative == relative
    assert (shifted(model, ids) < 1e-5) == relative


def test_shaw_beside_rotary_says_so_on_its_card(settings_of: Callable[..., Settings]) -> None:
    both = " ".join(card("relative", settings_of("encoding=[rotary,relative]")).split())
    assert "composed, encoder rotary rotates queries and keys, and relative" in both
    assert "composed" not in card("relative", settings_of("encoding=relative"))


def test_huang_3_keeps_what_earlier_entries_added() -> None:
    """e_ij = q_i . r_ij + sum_d q_id k_jd a_ijd, by two loops."""
    torch.manual_seed(0)
    entries = {"relative_key": {"use": "relative", "tau": 2, "value": False}}
    both = Encodings(create({**entries, "huang": {"method": 3, "tau": 2}}, DIMS)).double()
    for p in both.parameters():
        p.data.normal_()
    q, k = torch.randn(2, 3, 2, 5, 4, dtype=torch.double)
    at = torch.arange(5)[None]
    s = both.scores(q, k, 1, Context("encoder", at, at, at, rows=3))
    table, a = (dict(both.named_parameters())[n][1] for n in NAMES)
    for i in range(5):
        for j in range(5):
            row = max(-2, min(2, j - i)) + 2
            one = (q[:, :, i] * (k[:, :, j] * a[:, row] + table[:, row])).sum(-1)
            assert torch.allclose(s[:, :, i, j], one, atol=1e-12)
    s.sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in both.parameters())


DIMS = Dims("encoder", 2, 2, 8, 4)
NAMES = ("entries.0.key_table", "entries.1.a")


@pytest.mark.parametrize("wide", fast_first(1, ["sine_spe", "sine_spe_stochastic"]))
@pytest.mark.parametrize(
    "other",
    ["relative", "tener", "transformer_xl", "cope", "huang_3", "huang_4", "conv_spe", "irpe",
     "deberta", "composite", "shaw_absolute", "spr_relative", "rr_transformer"],
)  # fmt: skip
def test_features_of_queries_and_keys_are_read_by_their_product_alone(
    wide: str, other: str, settings_of: Callable[..., Settings]
) -> None:
    for pair in (f"{wide},{other}", f"{other},{wide}"):
        with pytest.raises(UserError, match=f"but encoding.{wide} turns them into features that"):
            preflight.check(settings_of(f"encoding=[{pair}]"))


@pytest.mark.parametrize("other", ["rotary", "xpos", "floater", "position_infused"])
def test_nothing_changes_queries_and_keys_after_their_features(
    other: str, settings_of: Callable[..., Settings]
) -> None:
    with pytest.raises(UserError, match="has made features already; name sine_spe last"):
        preflight.check(settings_of(f"encoding=[sine_spe,{other}]"))
    preflight.check(settings_of(f"encoding=[{other},sine_spe]"))


def test_features_of_features_are_refused(settings_of: Callable[..., Settings]) -> None:
    with pytest.raises(UserError, match="makes features of queries and keys, but enc"):
        preflight.check(settings_of("encoding=[sine_spe,sine_spe_stochastic]"))


@pytest.mark.parametrize("other", ["huang_1", "relative_value", "da_transformer", "t5", "alibi"])
def test_what_knows_only_scores_stands_beside_features(other: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding=[sine_spe,{other}]")
    assert model.encoder_encodings.relative and shifted(model, ids) < 1e-5


@pytest.mark.parametrize(
    ("pair", "useless"),
    [
        ("rotary,gaussian", "rotary"),
        ("gaussian,rotary", "rotary"),
        ("gaussian,position_infused", "position_infused"),
        ("sliding_window,gaussian", "sliding_window"),
        ("gaussian,t5", "t5"),
        ("synthesizer_random,gaussian", "synthesizer_random"),
        ("xpos,synthesizer_random", "xpos"),
        ("synthesizer_factorised,fope", "fope"),
        ("huang_1,synthesizer", "huang_1"),
    ],
)
def test_what_changes_nothing_is_refused(
    pair: str, useless: str, settings_of: Callable[..., Settings]
) -> None:
    replacing = next(name for name in pair.split(",") if name != useless)
    what = f"encoding.{useless}: changes nothing, because encoding.{replacing} "
    with pytest.raises(UserError, match=what):
        preflight.check(settings_of(f"encoding=[{pair}]"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["encoding=[floater,gaussian]"],  # also changes values
        ["encoding=[relative_value,gaussian]"],
        ["encoding=[rotary,gaussian]", "encoding.gaussian.layers=[0]"],
        ["encoding=[synthesizer,huang_1]"],  # multiplies what the other made
        ["encoding=[alibi,synthesizer_random]"],
        ["encoding=[rotary,synthesizer]"],  # reads queries
    ],
    ids=" ".join,
)
def test_what_changes_something_beside_a_fixed_attention_is_not(
    arguments: list[str], settings_of: Callable[..., Settings]
) -> None:
    preflight.check(settings_of(*arguments))


@pytest.mark.parametrize(
    ("arguments", "projections"),
    [
        (["encoding=gaussian"], 0),
        (["encoding=synthesizer"], 1),
        (["encoding=synthesizer_random"], 0),
        (["encoding=[synthesizer_random,relative_key]"], 2),  # reads queries
        (["encoding=[absolute,gaussian]", "encoding.gaussian.where=encoder"], 0),
        (["encoding=gaussian", "encoding.gaussian.layers=[0]"], 2),
    ],
    ids=str,
)
def test_projections_that_nothing_reads_are_left_out(
    arguments: list[str], projections: int, tiny: Make
) -> None:
    model = tiny(*arguments)
    for layer in model.encoder.layers:
        attention = cast(EncoderLayer, layer).attention
        both = attention.query, attention.key
        assert sum(isinstance(p, torch.nn.Linear) for p in both) == projections
    for layer in model.decoder.layers:
        cross = cast(DecoderLayer, layer).cross
        assert all(isinstance(p, torch.nn.Linear) for p in (cross.query, cross.key))
