"""Encodings that see later tokens, or padding, or places, though they must not: refused by name."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt import build
from nmt.checks import example, preflight, trial
from nmt.checks.example import build_perturbed
from nmt.config.settings import Settings
from nmt.encodings.base import Context, Dims, Encoding, Projection, softmax
from nmt.errors import UserError
from tests import composing
from tests.conftest import TINY

FUTURE = "lets earlier tokens see later ones"
PADDING = "lets padding change the tokens before it"


class Gated(Encoding):
    """What it adds is multiplied by a parameter that starts at zero, which hides it at first."""

    position_type = "none"

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.gate = torch.nn.Parameter(torch.zeros(()))

    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        """The gate gets a gradient in every site, whatever a subclass adds."""
        return s * (1 + self.gate)


class Embed(Gated):
    def embed(self, x: Tensor, context: Context) -> Tensor:
        return x + self.gate * x.mean(1, keepdim=True)


class Layer(Gated):
    def layer(self, x: Tensor, layer: int, context: Context) -> Tensor:
        return x + self.gate * x.mean(1, keepdim=True)


class Project(Gated):
    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        return project(xq, xk, xv + self.gate * xv.flip(1).cumsum(1).flip(1))


class Scores(Gated):
    def scores(self, s: Tensor, q: Tensor, k: Tensor, layer: int, context: Context) -> Tensor:
        return s.add_(self.gate * s.mean(2, keepdim=True))


class Lengths(Gated):
    """Of the length of the target, which is not known beforehand."""

    def bias(self, layer: int, context: Context) -> Tensor:
        return self.gate * (context.keys / context.keys.shape[1])[:, None, None, :]


class Normalise(Gated):
    def normalise(self, e: Tensor, layer: int, context: Context) -> Tensor:
        return softmax(e, context.allowed) + self.gate * e.softmax(-1)


class InTraining(Gated):
    def embed(self, x: Tensor, context: Context) -> Tensor:
        return x + self.gate * x.mean(1, keepdim=True) if context.training else x


class Nearby(Gated):
    """Says that distances are all that it reads, and reads places."""

    relative = True

    def bias(self, layer: int, context: Context) -> Tensor:
        return self.gate * (context.delta * context.keys[:, None]).sin()[:, None]


class Noisy(Gated):
    """Draws numbers, of torch and of others: no fault."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        if not context.training:
            return x
        return x * (1 + 0.1 * self.gate * torch.randn_like(x)) * random.uniform(0.9, 1.1)


def plug(cls: type[Encoding], *words: str, **options: Any) -> Settings:
    """Settings with an encoding of one's own, and others before it."""
    settings = composing.settings_of(*TINY, *words)
    return replace(settings, encoding={**settings.encoding, "mine": {"use": cls, **options}})


def refusal(settings: Settings) -> str:
    with pytest.raises(UserError) as e:
        preflight.check(settings)
    return str(e.value)


@pytest.mark.parametrize("cls", [Embed, Layer, Project, Scores, Lengths, Normalise])
def test_a_hook_that_sees_the_future_is_named(cls: type[Encoding]) -> None:
    hook = "bias" if cls is Lengths else cls.__name__.lower()
    advice = "a token may depend on no later one"
    if hook == "normalise":
        advice = "give no weight where context.allowed is false"
    message = refusal(plug(cls, "encoding=[absolute,rotary]", where="decoder"))
    assert message == f"encoding.mine: its `{hook}` (decoder) {FUTURE}; {advice}"


@pytest.mark.parametrize("cls", [Embed, Normalise, Lengths])
def test_a_hook_that_sees_padding_is_named(cls: type[Encoding]) -> None:
    assert f"(encoder) {PADDING}; " in refusal(plug(cls, where="encoder"))


def test_attention_to_the_source_is_tried_too() -> None:
    message = refusal(plug(Normalise, "encoding=complex_order", where="cross"))
    assert f"encoding.mine: its `normalise` (cross) {PADDING}; give no weight" in message


def test_a_leak_in_training_alone_is_seen() -> None:
    assert f"its `embed` (decoder) {FUTURE}; " in refusal(plug(InTraining, "model.dropout=0.3"))


@pytest.mark.parametrize("more", [(), ("encoding=[lstm,relative]",)])
def test_who_says_relative_must_be(more: tuple[str, ...]) -> None:
    assert refusal(plug(Nearby, *more)) == (
        "encoding.mine: says `relative`, but a common shift of all positions changes what it does; "
        "read distances alone (context.delta), or leave `relative` false"
    )


def test_numbers_that_are_drawn_are_no_fault() -> None:
    preflight.check(plug(Noisy))
    preflight.check(plug(Gated))


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=lrpe"],
        ["encoding=universal", "model.share_layers=true"],
        ["encoding=[complex_order,t5]", "encoding.t5.at=sample"],
        ["encoding=learned", "encoding.learned.size=7", "data.max_length=6"],
        ["encoding=[shape,convolution]", "model.dropout=0.5", "model.attention_dropout=0.5"],
        ["encoding=[rotary,relative]"],
    ],
    ids=" ".join,
)
def test_what_is_right_differs_by_rounding_alone(
    words: list[str], settings_of: Callable[..., Settings]
) -> None:
    model = build_perturbed(build.shrink(settings_of(*words)))
    text = example.text(model)
    changes = trial.changes(model, text)
    assert [c.training for c in changes] == [True, False, False]
    with torch.random.fork_rng(devices=[]):
        assert all(trial.difference(model, c) < trial.CLOSE / 8 for c in changes)
        trial.check_invariances(model, text)


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [
        (torch.zeros(3), torch.ones(3), 1.0),
        (torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, -torch.inf]), 0.0),
        (torch.tensor([1.0, -torch.inf]), torch.tensor([1.0, 2.0]), torch.inf),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0]), torch.inf),
        (torch.ones(0), torch.ones(0), 0.0),
    ],
)
def test_a_difference_is_a_share_of_the_largest_number(a: Tensor, b: Tensor, apart: float) -> None:
    assert trial.relative_difference(a, b) == apart
