"""Decoding with a cache equals the full pass, and mistakes in it are failing where they are."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.checks.parity import BOUNDS, CONDITIONS, Deviation
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.model.cache import State
from nmt.model.transformer import Transformer

Make = Callable[..., Settings]
NAMES = [*CONDITIONS]
EVERY = set(NAMES)
TOKENS = 8  # fewer than the command takes, to be quick


def measure(
    settings: Settings, model: type[Transformer] = Transformer, tokens: int = TOKENS
) -> list[Deviation]:
    """All conditions in float32, with a model that may override methods of the right one."""
    wrong = build_perturbed(settings)
    wrong.__class__ = model
    return list(parity.measure(wrong, tokens, ["float32"]))


def failed(cells: list[Deviation]) -> set[str]:
    assert [c.condition for c in cells] == NAMES
    return {c.condition for c in cells if not c.passed}


@pytest.mark.parametrize(
    "words",
    [
        ["encoding=[absolute,relative]", "model.share_layers=true", "model.norm=post"],
        ["encoding=learned", "encoding.learned.size=8"],  # shorter than what is wanted
    ],
    ids=["shared", "limit"],
)
def test_what_is_right_passes(words: list[str], settings_of: Make) -> None:
    cells = list(parity.measure(build_perturbed(settings_of(*words)), TOKENS))
    assert [(c.precision, c.condition) for c in cells] == [(p, n) for p in BOUNDS for n in NAMES]
    for c in cells:
        assert c.difference <= c.bound and 0.5 < c.bound / BOUNDS[c.precision] < 50
    assert BOUNDS == {"float32": 2**-18, "bfloat16": 1 / 16}
    # Two ways to compute: were they the same calls, float32 would agree to the last bit.
    assert all(c.difference > 0 for c in cells if c.precision == "float32")


def test_an_output_that_outruns_its_source_passes(settings_of: Make) -> None:
    keys = ("encoding.deberta.where=[encoder,decoder,cross]", "encoding.deberta.k=4")
    model = build_perturbed(settings_of("encoding=deberta", *keys))
    (deviation,) = parity.measure(model, 16, ["float32"], ["token by token"])
    assert deviation.passed, deviation.finding


class OffByOne(Encoding):
    """A bias that is that of the key before, while decoding and where a subclass says so."""

    def bias(self, layer: int, context: Context) -> Tensor:
        decoding = context.state is not None and context.site == "decoder"
        wrong = decoding and self.is_wrong(context.query_positions.shape[1])
        return (context.delta - int(wrong)).sin()[:, None]

    def is_wrong(self, queries: int) -> bool:
        return True


class Several(OffByOne):
    def is_wrong(self, queries: int) -> bool:
        return queries > 1


class Used(Encoding):
    """Keeps the length of its first full pass, which only a used module has seen."""

    length = 0

    def bias(self, layer: int, context: Context) -> Tensor:
        if not self.length and context.state is None:
            self.length = context.key_positions.shape[1]
        return (context.delta * 0.01 * (self.length or TOKENS)).sin()[:, None]


class Padded(Encoding):
    def embed(self, x: Tensor, context: Context) -> Tensor:
        steps = torch.linspace(-0.1, 0.2, x.shape[-1])  # which layer norm does not take away
        return x + x.shape[1] * steps if context.site == "encoder" else x


@pytest.mark.parametrize(
    ("cls", "conditions"),
    [
        (OffByOne, EVERY),
        (Several, {"several at once"}),
        (Used, {"after other passes"}),
        (Padded, {"padding"}),
    ],
)
def test_only_these_conditions_fail(
    cls: type[Encoding], conditions: set[str], settings_of: Make
) -> None:
    settings = replace(settings_of(), encoding={"wrong": {"use": cls}})
    failing = failed(measure(settings))
    # sentences without padding have other lengths, which Used shows
    assert failing - {"padding"} == conditions - {"padding"}
    assert cls is Used or failing == conditions


class StartsAtOne(Transformer):
    """Keys then lack one position, which is an exception in each cell and not the end."""

    def start(self, *arguments: Any) -> State:
        state = super().start(*arguments)
        state.length = 1
        return state


class SeesUnusedRoom(Transformer):
    def advance(self, tokens: Tensor, state: State) -> Tensor:
        states = super().advance(tokens, state)
        room = state.self_caches[0].tensors[0][:, :, state.length :]
        return states * (math.nan if room.numel() and room.isnan().all() else 1)


class NotFinite(Transformer):
    """One number of thousands, and where both sides agree about it."""

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden)
        logits[-1, 0, 0] = math.inf
        return logits


class Forgetful(State):
    """Reorders all but states of recurrent networks."""

    def reorder(self, rows: Tensor) -> None:
        kept = self.recurrent
        super().reorder(rows)
        self.recurrent = {
            name: value[torch.arange(rows.numel()) % len(value)] for name, value in kept.items()
        }


class Swapping(State):
    """Gives the keys of one hypothesis to another."""

    def reorder(self, rows: Tensor) -> None:
        super().reorder(rows)
        for cache in self.self_caches:
            if cache.length:
                cache.reorder(torch.arange(rows.numel()).flip(0))


def with_state(kind: type[State]) -> type[Transformer]:
    class Starting(Transformer):
        def start(self, *arguments: Any) -> State:
            state = super().start(*arguments)
            state.__class__ = kind
            return state

    return Starting


@pytest.mark.parametrize(
    ("model", "conditions"),
    [
        (StartsAtOne, EVERY),
        (NotFinite, EVERY),
        (SeesUnusedRoom, EVERY),
        (with_state(Forgetful), {"beams"}),
        (with_state(Swapping), {"beams"}),
    ],
)
def test_mistakes_of_the_model_show(
    model: type[Transformer], conditions: set[str], settings_of: Make
) -> None:
    cells = measure(settings_of("encoding=[lstm,relative]"), model)
    assert failed(cells) == conditions
    assert all(c.error is not None for c in cells if model is StartsAtOne)
