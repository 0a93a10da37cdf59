"""Ricker wavelets of the distance against the formula in loops."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.vectors.wavelet import Wavelet
from tests.encodings.attending import attend, dims, equals_loops, qkv


def wave(t: float, a: float, b: float) -> float:
    x = (t - b) / a
    return (1 - x * x) * math.exp(-x * x / 2)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("scales, first", [(2, 0), (4, 2), (8, -1)])
def test_equals_the_formula_in_loops(site: str, scales: int, first: int) -> None:
    shifts = [0, -1, 1, -2] if site == "encoder" else [0, 1, 2, 3]
    places = list(product(range(first, first + scales), shifts[: 8 // scales]))

    def logit(q: Tensor, k: Tensor, layer: int, h: int, i: int, j: int) -> Tensor:
        p = [wave(i - j, 2**a, b) for a, b in places]
        return q @ (k + torch.tensor(p, dtype=torch.float64)) / 8**0.5

    equals_loops(Wavelet(dims(site, head_dim=8), scales, first), logit)


def test_one_query_at_a_time_and_positions_of_each_sentence() -> None:
    sizes = dims("decoder", head_dim=8)
    e, (q, k, v) = Wavelet(sizes, 4), qkv(9, sizes)
    apart = torch.tensor([[1.0], [2.5]])  # as far as the words of two sentences are
    for at in (torch.arange(9)[None], torch.arange(9) * apart):
        whole = attend(e, q, k, v, Context("decoder", at, at, at, rows=2))[0]
        for i in range(9):
            step = Context("decoder", at[:, i : i + 1], at, at[:, i : i + 1], rows=2)
            alone = attend(e, q[:, :, i : i + 1], k, v, step)[0]
            torch.testing.assert_close(alone, whole[:, :, i : i + 1])
    e, q = Wavelet(sizes, 4), torch.zeros_like(q)
    q[..., 5] = 1
    found = attend(e, q, torch.zeros_like(k), v, Context("decoder", at, at, at, rows=2))[0]
    x = (4 * 2.5 - 1) / 4  # word 4 of the second sentence asks about word 0; a = 4, b = 1
    assert math.isclose(found[1, 0, 4, 0], (1 - x * x) * math.exp(-x * x / 2) / 8**0.5)


def test_scales_divide_the_head() -> None:
    with pytest.raises(ValueError, match="scales=3: must divide the 4 of a head"):
        Wavelet(dims(), scales=3)
    with pytest.raises(ValueError, match="scales=0: must divide"):
        Wavelet(dims(), scales=0)
