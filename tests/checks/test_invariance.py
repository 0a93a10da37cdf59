"""Encodings that see later tokens, or padding, or places, though they must not, are refused."""

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import preflight
from nmt.checks.properties import relative_difference
from nmt.config.settings import Settings
from nmt.encodings.base import Context, Dims, Encoding, Projection, softmax
from nmt.errors import UserError
from tests import composing
from tests.conftest import TINY

LATER = "a later token changes what comes before it"
PADDING = "padding changes the tokens before it"


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


class Project(Gated):
    def project(
        self, project: Projection, xq: Tensor, xk: Tensor, xv: Tensor, layer: int, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        return project(xq, xk, xv + self.gate * xv.flip(1).cumsum(1).flip(1))


class Lengths(Gated):
    """Of the length of the target, which is not known beforehand."""

    def bias(self, layer: int, context: Context) -> Tensor:
        at = context.key_positions
        return self.gate * (at / at.shape[1])[:, None, None, :]


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
        return self.gate * (context.delta * context.key_positions[:, None]).sin()[:, None]


class Noisy(Gated):
    """Draws numbers, of torch and of others: no fault."""

    def embed(self, x: Tensor, context: Context) -> Tensor:
        if not context.training:
            return x
        return x * (1 + 0.1 * self.gate * torch.randn_like(x)) * random.uniform(0.9, 1.1)


def with_class(cls: type[Encoding], *arguments: str, **options: Any) -> Settings:
    """Settings with an encoding of one's own, and others before it."""
    settings = composing.settings_of(*TINY, *arguments)
    return replace(settings, encoding={**settings.encoding, "mine": {"use": cls, **options}})


def refusal(settings: Settings) -> str:
    with pytest.raises(UserError) as e:
        preflight.check(settings)
    return str(e.value)


@pytest.mark.parametrize("cls", [Embed, Project, Lengths, Normalise])
def test_what_sees_the_future_is_refused(cls: type[Encoding]) -> None:
    message = refusal(with_class(cls, "encoding=[absolute,rotary]", where="decoder"))
    assert message.startswith(f"encoding=[absolute,rotary,mine]: {LATER}; ")


@pytest.mark.parametrize(
    ("cls", "site", "others"),
    [
        (Embed, "encoder", "none"),
        (Lengths, "encoder", "none"),
        (Normalise, "cross", "complex_order"),
    ],
)
def test_what_sees_padding_is_refused(cls: type[Encoding], site: str, others: str) -> None:
    assert PADDING in refusal(with_class(cls, f"encoding={others}", where=site))


def test_a_leak_in_training_alone_is_seen() -> None:
    message = refusal(with_class(InTraining, "model.dropout=0.3"))
    assert LATER in message and "in training" in message


def test_who_says_relative_must_be() -> None:
    message = refusal(with_class(Nearby, "encoding=none"))
    assert "`relative` is True, but a common shift" in message


def test_numbers_that_are_drawn_are_no_fault() -> None:
    preflight.check(with_class(Noisy))
    preflight.check(with_class(Gated))


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
    assert relative_difference(a, b) == apart
