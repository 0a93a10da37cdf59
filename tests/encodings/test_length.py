"""Encodings that know how long the output is to be, which a decoder must be told."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Dims
from nmt.encodings.context import Context
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.input.lrpe import LengthRatio
from nmt.encodings.passes import with_positions
from nmt.encodings.positions import Remaining
from nmt.model.transformer import Transformer

DIMS = Dims("decoder", 1, 2, 8, 4)


def context(n: int, *lengths: int, training: bool = False) -> Context:
    at = torch.arange(n)[None]
    return Context(
        "decoder", at, at, at, rows=len(lengths), lengths=torch.tensor(lengths), training=training
    )


def added(e: Absolute | LengthRatio, c: Context) -> Tensor:
    return e.embed(torch.zeros(c.rows, c.queries.shape[1], 8), with_positions(c, e.positions))


def test_golden_numbers() -> None:
    """d = 8, desired length 10, position 3."""
    ratio = added(LengthRatio(DIMS), context(4, 10))[0, 3]
    golden = [0.141120, -0.989992, 0.993253, -0.115966, 0.812649, 0.582754, 0.508536, 0.861041]
    assert torch.allclose(ratio, torch.tensor(golden), atol=1e-6)
    difference = added(Absolute(replace(DIMS, positions=Remaining())), context(4, 10))[0, 3]
    golden = [0.656987, 0.753902, 0.644218, 0.764842, 0.069943, 0.997551, 0.007000, 0.999976]
    assert torch.allclose(difference, torch.tensor(golden), atol=1e-6)


def test_ratio_in_loops() -> None:
    got = added(LengthRatio(DIMS), context(7, 5, 9, 1))
    for row, n in enumerate([5, 9, 2]):  # a length of 1 counts as 2
        for t in range(7):
            for b in range(4):
                angle = t / n ** (2 * b / 8)
                assert float(got[row, t, 2 * b]) == pytest.approx(math.sin(angle), abs=1e-6)
                assert float(got[row, t, 2 * b + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_noise_is_for_training_and_within_its_bounds() -> None:
    lengths = [20] * 4000
    still = Remaining(3).assign(torch.arange(1), context(1, *lengths))
    assert (still == 20).all()
    c = context(2, *lengths, training=True)
    drawn = Remaining(3).assign(torch.arange(1)[None], c)
    assert sorted(set(drawn.flatten().tolist())) == list(range(17, 24))
    counts = torch.bincount(drawn.flatten() - 17)
    assert counts.min() > 4000 / 7 * 0.8  # evenly
    again = Remaining(3).assign(torch.arange(1)[None], c)
    assert torch.equal(drawn, again)  # one draw per sentence and pass
    assert not torch.equal(added(LengthRatio(DIMS, 3), c), added(LengthRatio(DIMS), c))


@pytest.mark.parametrize("option", ["ldpe", "lrpe"])
def test_decoders_must_be_told_a_length(
    option: str, tiny: Callable[..., Transformer], ids: Callable[..., Tensor]
) -> None:
    model = tiny(f"encoding={option}")
    assert model.needs_lengths
    with pytest.raises(ValueError, match="desired length"):
        model.start(ids(2, 5))
    ten, twelve = (
        model.step(ids(2, 1)[:, 0], model.start(ids(2, 5), None, torch.tensor([n, n])))
        for n in (10, 12)
    )
    if option == "ldpe":
        assert not torch.allclose(ten, twelve)
    else:  # the first position is 0 whatever the length
        assert torch.allclose(ten, twelve)
