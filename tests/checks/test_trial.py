"""A first step of training, tried on made-up text before any text is prepared."""

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.checks import preflight
from nmt.config.compose import experiment_of
from nmt.config.settings import Settings
from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.context import Context
from nmt.encodings.vectors.huang import Huang
from nmt.errors import UserError
from tests.composing import every_encoding

MODELS = [
    ["model.encoder_layers=1", "model.decoder_layers=1"],
    ["model.drop_residual=[2,3]", "model.encoder_layers=3"],
    ["model.share_layers=true"],
    ["model.norm=post", "model.tie=target"],
    ["encoding=axial", "encoding.axial.first=100", "model.dim=512", "model.heads=8"],
    ["encoding=complex_order", "model.feedforward=complex"],
    ["encoding=per_language", "encoding.per_language.languages=1"],
    ["encoding=learned", "encoding.learned.at={column:{name:order}}",
     "encoding.learned.where=encoder"],
    ["encoding=[rotary,absolute]", "encoding.rotary.where=[encoder,decoder,cross]"],
]  # fmt: skip


@pytest.mark.parametrize("option", every_encoding())
def test_every_encoding_passes(option: str, settings_of: Callable[..., Settings]) -> None:
    preflight.check(settings_of(f"encoding={option}"))


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_every_shape_of_model_passes(
    words: list[str], settings_of: Callable[..., Settings]
) -> None:
    preflight.check(settings_of(*words))


def test_no_number_is_drawn_from_the_generator(settings_of: Callable[..., Settings]) -> None:
    before = torch.random.get_rng_state()
    preflight.check(settings_of("encoding=[shape,sine_spe_stochastic]"))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_who_replaces_what_others_added_is_found(
    settings_of: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(self: Huang, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        index = context.clipped(self.tau)
        a = self.pick(self.a, layer)[..., 0][:, index].transpose(0, 1)
        return (q @ k.mT) * a

    monkeypatch.setattr(Huang, "scores", deaf)
    both = settings_of("encoding=[relative_key,huang_2]")
    with pytest.raises(UserError, match=r"encoding.relative_key: key_table \(encoder\): gets no"):
        preflight.check(both)
    monkeypatch.setattr(Huang, "may_lack_gradients", True)
    with pytest.raises(UserError, match=r"key_table \(encoder\): gets no"):  # no more than before
        preflight.check(both)


def test_who_reads_no_queries_says_so(settings_of: Callable[..., Settings]) -> None:
    preflight.check(settings_of("encoding=gaussian"))
    with pytest.raises(UserError, match=r"encoding.relative: key_table \(encoder\): gets no gradi"):
        preflight.check(settings_of("encoding=[gaussian,relative]"))


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        (lambda self, layer, c: c.delta[:, None] * torch.nan, "encoding: the loss of a first step"),
        (lambda self, layer, c: torch.ones(1, 1, 3, 3), r"^encoding\.alibi: its `bias` returns "
         r"\[1, 1, 3, 3\] in the encoder; expected .* = \[3, 2, 9, 9\]$"),
        (lambda self, layer, c: {}[layer], r"encoding=\[alibi\]: a first step fails: "
         "KeyError at test_trial.py:"),
    ],
)  # fmt: skip
def test_what_an_encoding_does_wrong_is_one_line(
    bias: Callable[..., Tensor],
    message: str,
    settings_of: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Alibi, "bias", bias)
    with pytest.raises(UserError, match=message) as e:
        preflight.check(settings_of("encoding=alibi"))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["model.dim=4096", "model.heads=32", "model.feedforward_dim=16384",
         "model.encoder_layers=48", "model.decoder_layers=48"],
        ["encoding=shaw_absolute", "encoding.shaw_absolute.longest=4000", "model.dim=64",
         "model.heads=8"],
    ],
)  # fmt: skip
@pytest.mark.slow
def test_the_check_is_quick_whatever_the_size(words: list[str]) -> None:
    settings = experiment_of(words).settings
    preflight.check(settings)
    began = time.process_time()
    preflight.check(settings)
    assert time.process_time() - began < 2


@pytest.mark.slow
def test_paths_reach_positions_that_are_drawn(settings_of: Callable[..., Settings]) -> None:
    preflight.check(settings_of("encoding=floater", "encoding.floater.at=shift"))
