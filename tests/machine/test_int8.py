"""Linear layers in 8-bit integers: exact sums, and rounding that is no coarser than it must be."""

import pytest
import torch
from torch import nn

from nmt.machine.int8 import FORMATS, Int8, Integers, _product, is_exact

EXACT = [integers for integers in FORMATS.values() if is_exact(integers)]  # on this processor


@pytest.mark.parametrize("integers", EXACT)
def test_a_layer_in_8_bits_is_as_near_as_rounding_allows(integers: Integers) -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(5, 3, 64) * torch.logspace(-3, 3, 5)[:, None, None]
    x[1, 1] = 0
    rounded = Int8(linear, integers)
    y, exact = rounded(x), linear(x)
    assert y.shape == exact.shape
    weight = linear.weight.abs().amax(1) / integers.largest
    scale = x.abs().amax(-1, keepdim=True) / 127
    off = x.abs().sum(-1, keepdim=True) * weight / 2  # half a unit of each weight
    off = off + scale / 2 * (linear.weight.abs().sum(1) + 64 * weight / 2)  # and of each input
    assert ((y - exact).abs() <= off + 1e-5 * exact.abs() + 1e-6).all()
    assert (y - exact).abs().max() > 0
    assert torch.equal(rounded(x[3:4, :1]), y[3:4, :1])  # rows keep apart
    assert rounded(x[:0]).shape == (0, 3, 48)


def test_some_format_is_right_on_every_processor() -> None:
    """Weights of 7 bits leave no sum of two products beyond 16 bits."""
    assert Integers(zero=128, largest=63) in EXACT or Integers(zero=0, largest=127) in EXACT


@pytest.mark.parametrize("integers", FORMATS.values())
def test_a_format_is_right_if_random_products_are(integers: Integers) -> None:
    """What `is_exact` finds with its extreme numbers holds for others, of another size."""
    torch.manual_seed(0)
    x = torch.randint(-127, 128, (9, 512), dtype=torch.int)
    weight = torch.randint(-integers.largest, integers.largest + 1, (33, 512), dtype=torch.int8)
    weight[0], x[0] = integers.largest, 127
    scale, zero = torch.ones(33), torch.zeros(33, dtype=torch.long)
    packed = torch.ops.onednn.qlinear_prepack(weight, None)
    products = _product(x + integers.zero, integers, packed, scale, zero)
    assert torch.equal(products, (x @ weight.int().T).float()) == is_exact(integers)
