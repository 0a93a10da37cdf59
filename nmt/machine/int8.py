"""A linear layer in 8-bit integers, for CPUs that multiply them faster than floating point.

Each row of a weight has a scale of its own, so that its largest number becomes 127, and so has each
row of the input when it arrives (dynamic quantisation, as in CTranslate2). Sums are exact; weights
and inputs are rounded.
"""

import torch
from torch import Tensor, nn

LARGEST = 127  # -128 stays unused, so that signs are symmetric
ZERO = 128  # added to inputs, which VNNI multiplies without a sign


class Int8(nn.Module):
    """A linear layer whose weight is rounded to 8 bits; its output is float32."""

    scale: Tensor  # [outputs] of the rows of the weight
    zero: Tensor  # [outputs]
    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
        tiny = torch.finfo(torch.float32).tiny
        scale = weight.abs().amax(1).clamp(min=tiny) / LARGEST
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
        shifted = (rows * (LARGEST / scale)).round_().add_(ZERO).to(torch.uint8)
        products = torch.ops.onednn.qlinear_pointwise(
            shifted, 1.0, ZERO, self.packed, self.scale, self.zero, None, 1.0, 0, torch.float32,
            "none", [], "",
        )  # fmt: skip
        return torch.addcmul(self.bias, products, scale / LARGEST).view(*x.shape[:-1], -1)
