"""Linear layers in 8-bit integers: exact sums, and rounding that is no coarser than it must be."""

import pytest
import torch
from torch import nn

from nmt.system.machine import this_machine
from nmt.system.products import Int8

if not this_machine().int8:
    pytest.skip("this processor adds products in 16 bits", allow_module_level=True)


def test_a_layer_in_8_bits_is_as_near_as_rounding_allows() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(5, 3, 64) * torch.logspace(-3, 3, 5)[:, None, None]
    x[1, 1] = 0
    rounded = Int8(linear)
    y, exact = rounded(x), linear(x)
    assert y.shape == exact.shape
    weight = linear.weight.abs().amax(1) / 127
    scale = x.abs().amax(-1, keepdim=True) / 127
    off = x.abs().sum(-1, keepdim=True) * weight / 2  # half a unit of each weight
    off = off + scale / 2 * (linear.weight.abs().sum(1) + 64 * weight / 2)  # and of each input
    assert ((y - exact).abs() <= off + 1e-5 * exact.abs() + 1e-6).all()
    assert (y - exact).abs().max() > 0
    assert torch.equal(rounded(x[3:4, :1]), y[3:4, :1])  # rows keep apart
    assert rounded(x[:0]).shape == (0, 3, 48)


def test_sums_of_the_largest_numbers_are_exact() -> None:
    """Of two products of 127 x 127, which exceed 16 bits."""
    x = torch.full((4, 64), 127.0)
    x[1::2] *= -1
    linear = nn.Linear(64, 16)
    with torch.no_grad():
        linear.weight.fill_(127.0)
        linear.weight[1::2] *= -1
        linear.bias.zero_()
    assert torch.equal(Int8(linear)(x), linear(x))
