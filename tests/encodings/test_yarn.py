"""YaRN's frequencies by the formula, pair by pair, and what multiplies queries and keys."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.encodings.base import Encoding
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.rotary.yarn import Yarn
from tests.encodings.attending import attend, dims, pass_over, qkv
from tests.encodings.test_rotary import scores_in_loops

WIDTH, PAIRS = 32, 16


def kept(ramp: Any, b: int, original: int) -> float:
    """The share of pair b's frequency that stays, beta 32 and 1."""
    w = 10000 ** (-2 * b / WIDTH)
    if ramp == "turns":
        return min(max((original * w / (2 * math.pi) - 1) / 31, 0), 1)
    places = [
        WIDTH * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(10000))
        for turns in (32, 1)
    ]
    first, last = max(math.floor(places[0]), 0), min(math.ceil(places[1]), WIDTH - 1)
    return 1 - min(max((b - first) / (last - first), 0), 1)


@pytest.mark.parametrize("ramp", ["components", "turns"])
@pytest.mark.parametrize("original, factor", [(64, 4.0), (512, 2.0), (100_000, 16.0)])
def test_scores_in_loops(ramp: Any, original: int, factor: float) -> None:
    e = Yarn(dims(head_dim=WIDTH), factor=factor, original=original, ramp=ramp)
    q, k, v = qkv(6, e.dims)
    found = attend(e, q, k, v, pass_over(6))[0]
    sharper = (0.1 * math.log(factor) + 1) ** 2
    w = []
    for b in range(PAIRS):
        g, frequency = kept(ramp, b, original), 10000 ** (-2 * b / WIDTH)
        w.append(g * frequency + (1 - g) * frequency / factor)
    wanted = scores_in_loops(q, k, w, [1.0] * PAIRS, 0)
    torch.testing.assert_close(found, wanted * sharper * WIDTH**-0.5)


def test_golden() -> None:
    """64 positions, four times as far: pair 0 as before, those from 5 on four times slower."""
    ratio = Yarn(dims(head_dim=WIDTH)).frequencies() / Rotary(dims(head_dim=WIDTH)).frequencies()
    golden = [1, 0.85, 0.7, 0.55, 0.4, *[0.25] * 11]
    torch.testing.assert_close(ratio, torch.tensor(golden).double())


def test_without_a_factor_it_is_rotary_and_attention_can_be_given() -> None:
    q, k, v = qkv(6, dims(head_dim=8))
    scores = [
        attend(e, q, k, v, pass_over(6))[0]
        for e in (
            Rotary(dims(head_dim=8)),
            Yarn(dims(head_dim=8), factor=1.0),
            Yarn(dims(head_dim=8), factor=1.0, attention=2.0),
        )
    ]
    assert torch.equal(scores[0], scores[1])
    torch.testing.assert_close(scores[2], 4 * scores[0])


@pytest.mark.parametrize(
    "options, words",
    [
        ({"beta_slow": 40.0}, "beta_slow=40.0: must be below beta_fast=32.0"),
        ({"original": 6}, "original=6: too few positions, to turn 1 times takes more than 6.3"),
    ],
)
def test_refuses_what_means_nothing(options: dict[str, Any], words: str) -> None:
    make: Callable[..., Encoding] = Yarn
    with pytest.raises(ValueError, match=words):
        make(dims(), **options)
