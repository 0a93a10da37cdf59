"""Products with weights: in float32 on CPUs by the faster of the libraries that torch has for them.

torch itself takes MKL, and has oneDNN for other formats; for float32 only as an operator of its
compiler's, without a gradient. Here it gets one, and `Machine.onednn` says where it is faster.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from nmt.system.machine import ONEDNN_FROM, onednn, this_machine

INT8_MAX = 127  # of 8-bit integers; -128 stays unused, so that signs are symmetric
ZERO_POINT = 128  # added to inputs, which VNNI multiplies without a sign
this_machine()  # reads files, which no compiler can trace


class Linear(nn.Linear):
    """torch's linear layer, its product computed by `product`."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return product(x, self.weight, self.bias)


class Packed(nn.Module):
    """A linear layer for search in float32: a copy of its weight is laid out for oneDNN once."""

    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.packed, self.bias, "none", [], ""
        )
        return outputs


class Int8(nn.Module):
    """A linear layer in 8-bit integers, for CPUs that multiply them faster; its output is float32.

    Each row of a weight has a scale of its own, so that its largest number becomes 127, and so has
    each row of the input when it arrives (dynamic quantisation, as in CTranslate2). Sums are exact;
    weights and inputs are rounded.
    """

    scale: Tensor  # [outputs] of the rows of the weight
    zero: Tensor  # [outputs]
    bias: Tensor  # [outputs]

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, bias = linear.weight.detach().float(), linear.bias.detach().float()
        tiny = torch.finfo(torch.float32).tiny
        scale = weight.abs().amax(1).clamp(min=tiny) / INT8_MAX
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
        shifted = (rows * (INT8_MAX / scale)).round_().add_(ZERO_POINT).to(torch.uint8)
        products = torch.ops.onednn.qlinear_pointwise(
            shifted, 1.0, ZERO_POINT, self.packed, self.scale, self.zero, None, 1.0, 0,
            torch.float32, "none", [], "",
        )  # fmt: skip
        return torch.addcmul(self.bias, products, scale / INT8_MAX).view(*x.shape[:-1], -1)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., inputs] @ weight [outputs, inputs].T + bias: F.linear, but for the last bits."""
    if not _is_for_onednn(x, weight, weight.shape[0]):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias)
    ):
        rows: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias)
        return rows.view(*x.shape[:-1], -1)
    return onednn(x, weight, bias)


def add_gradient(total: Tensor, of_outputs: Tensor, inputs: Tensor) -> None:
    """Add of_outputs [rows, outputs].T @ inputs [rows, inputs] to total, in total's own format."""
    if total.dtype == inputs.dtype and not _is_for_onednn(of_outputs, inputs, inputs.shape[1]):
        total.addmm_(of_outputs.T, inputs)
    else:
        total += gradient(of_outputs, inputs)


def gradient(of_outputs: Tensor, inputs: Tensor) -> Tensor:
    """Compute a weight's gradient [outputs, inputs]: of_outputs.T @ inputs.

    oneDNN copies the first factor, to read it by rows; so the narrower is first.
    """
    if not _is_for_onednn(of_outputs, inputs, inputs.shape[1]):
        return of_outputs.T @ inputs
    if of_outputs.shape[1] <= inputs.shape[1]:
        return onednn(of_outputs.T, inputs.T)
    return onednn(inputs.T, of_outputs.T).T


def product_format(x: Tensor) -> torch.dtype:
    """Return the number format of products with x: autocast's if it is on, unless x is float64."""
    device = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


def rounded(x: Tensor) -> Tensor:
    """Round x for several products; autocast would round it anew for each."""
    return x.to(product_format(x))


class _Product(Function):
    """oneDNN's product of rows [n, inputs], and the two of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (
            onednn(g, weight.T) if needed[0] else None,
            gradient(g, x) if needed[1] else None,
            g.sum(0) if needed[2] else None,
        )


def _is_for_onednn(x: Tensor, other: Tensor, times: int) -> bool:
    """Whether oneDNN multiplies x and `other`, each number of x `times` times, on this CPU."""
    return (
        this_machine().onednn
        and x.numel() * times >= ONEDNN_FROM
        and x.dtype == other.dtype == torch.float32
        and x.device.type == other.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()  # a compiler chooses by itself
    )
