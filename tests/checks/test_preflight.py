"""A first step of training, tried on made-up text before any text is prepared."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nmt.checks import preflight
from nmt.config.settings import Settings
from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import Context
from nmt.errors import UserError

MODELS = [
    ["model.drop_residual=[2,3]", "model.encoder_layers=3"],
    ["encoding=axial", "encoding.axial.first=100", "model.dim=512", "model.heads=8"],
    ["encoding=complex_order", "model.feedforward=complex"],
    ["encoding=learned", "encoding.learned.at={column:{name:order}}",
     "encoding.learned.where=encoder"],
    ["encoding=[rotary,absolute]", "encoding.rotary.where=[encoder,decoder,cross]"],
]  # fmt: skip


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_every_shape_of_model_passes(
    words: list[str], settings_of: Callable[..., Settings]
) -> None:
    preflight.check(settings_of(*words))


def test_who_reads_no_queries_says_so(settings_of: Callable[..., Settings]) -> None:
    preflight.check(settings_of("encoding=gaussian"))
    with pytest.raises(UserError, match=r"encoding.relative: key_table \(encoder\): gets no gradi"):
        preflight.check(settings_of("encoding=[gaussian,relative]"))


class Wrong(Encoding):
    """Its bias is not finite, has no gradient at its start, is of another shape, or raises."""

    def __init__(self, dims: Dims, kind: str) -> None:
        super().__init__(dims)
        self.kind = kind
        self.gain = nn.Parameter(torch.full((99,), 0.01 if kind == "positive" else 0.0))

    def bias(self, layer: int, context: Context) -> Tensor:
        if self.kind == "raising":
            raise KeyError(layer)
        if self.kind in ("start", "positive"):  # the slope of a root at 0 is infinite
            read = torch.sqrt if self.kind == "start" else torch.log
            return read(self.gain).sum().view(1, 1, 1, 1)
        infinite = self.kind == "infinite"
        return context.delta[:, None] * torch.nan if infinite else torch.ones(1, 1, 3, 3)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("infinite", "encoding: the loss of a first step"),
        ("start", r"^encoding\.mine: gain \(encoder\): its gradient in a first step is not finite"),
        ("misshapen", r"^encoding\.mine: its `bias` \(encoder\) returns \[1, 1, 3, 3\]; expected"),
        ("raising", r"encoding=\[mine\]: a first step fails: KeyError at test_preflight.py:"),
    ],
)
def test_what_an_encoding_does_wrong_is_one_line(
    kind: str, message: str, settings_of: Callable[..., Settings]
) -> None:
    settings = replace(settings_of(), encoding={"mine": {"use": Wrong, "kind": kind}})
    with pytest.raises(UserError, match=message) as e:
        preflight.check(settings)
    assert "\n" not in str(e.value)


class WithoutHook(Encoding):
    """A misspelt hook."""

    def biass(self, layer: int, context: Context) -> Tensor:
        return context.delta[:, None].float()


def test_a_class_that_overrides_no_hook_is_refused(settings_of: Callable[..., Settings]) -> None:
    with pytest.raises(UserError, match=r"^encoding\.mine: its class overrides no hook"):
        preflight.check(replace(settings_of(), encoding={"mine": {"use": WithoutHook}}))
    preflight.check(settings_of("encoding=none"))


def test_what_must_stay_positive_passes(settings_of: Callable[..., Settings]) -> None:
    entries = {"mine": {"use": Wrong, "kind": "positive"}}  # noise makes some numbers negative
    preflight.check(replace(settings_of(), encoding=entries))
