"""A linear layer in 8-bit integers, for CPUs that multiply them faster than floating point.

Each row of a weight has a scale of its own, so that its largest number becomes 127 (or 63, where
products are added in 16 bits), and so has each row of the input when it arrives (dynamic
quantisation, as in CTranslate2). Sums are exact; weights and inputs are rounded.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

LARGEST = 127  # of an input in 8 bits; -128 stays unused, so that signs are symmetric


class Integers(NamedTuple):
    """How inputs and weights are rounded, for one of the kernels that oneDNN has."""

    zero: int  # added to inputs: 128 makes them unsigned
    largest: int  # of a weight: 127, or 63 in 7 bits


FORMATS = {
    "u8s8": Integers(zero=128, largest=127),  # x86 with VNNI or AMX, which add in 32 bits
    "u8s7": Integers(zero=128, largest=63),  # AVX2, AVX-512: two products are added in 16 bits
    "s8s8": Integers(zero=0, largest=127),  # ARM; on x86 a reference kernel, 1,000 times as slow
}  # by name: the integers of inputs and of weights


class Int8(nn.Module):
    """A linear layer whose weight is rounded to 8 bits (or 7); its output is float32."""

    scale: Tensor  # [outputs] of the rows of the weight
    zero: Tensor  # [outputs]
    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear, integers: Integers) -> None:
        super().__init__()
        self.integers = integers
        weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
        tiny = torch.finfo(torch.float32).tiny
        scale = weight.abs().amax(1).clamp(min=tiny) / integers.largest
        rounded = (weight / scale[:, None]).round().to(torch.int8)
        self.packed = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.register_buffer("scale", scale)
        self.register_buffer("zero", torch.zeros_like(scale, dtype=torch.long))
        self.register_buffer("bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        rows = x.reshape(-1, x.shape[-1])
        if not len(rows):
            return x.new_empty(*x.shape[:-1], len(self.scale))
        scale = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        shifted = (rows * (LARGEST / scale)).round_().add_(self.integers.zero)
        products = _product(shifted, self.integers, self.packed, self.scale, self.zero)
        return torch.addcmul(self.bias, products, scale / LARGEST).view(*x.shape[:-1], -1)


def is_exact(integers: Integers) -> bool:
    """Whether this CPU multiplies the largest numbers exactly, whose sums exceed 16 bits."""
    x = torch.full((4, 64), LARGEST, dtype=torch.int)  # [rows, inputs]
    x[1::2] *= -1
    x[2:, ::2] = 0
    weight = torch.full((16, 64), integers.largest, dtype=torch.int8)  # [outputs, inputs]
    weight[1::2] *= -1
    ones = torch.ones(16)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        products = _product(x + integers.zero, integers, packed, ones, ones.long() * 0)
    except (RuntimeError, AttributeError):  # this torch has no such kernel here
        return False
    return torch.equal(products, (x @ weight.int().T).float())


def _product(x: Tensor, integers: Integers, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Whole numbers [rows, inputs], shifted by integers.zero, times a packed weight, in float32."""
    kind = torch.uint8 if integers.zero else torch.int8
    return torch.ops.onednn.qlinear_pointwise(
        x.to(kind), 1.0, integers.zero, packed, scale, zero, None, 1.0, 0, torch.float32,
        "none", [], "",
    )  # fmt: skip
