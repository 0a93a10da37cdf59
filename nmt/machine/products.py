"""Products with weights in float32 on CPUs, by the faster of the libraries that torch has for them.

torch gives them to MKL, which uses all instructions of Intel's processors and AVX2 alone of others:
on AMD's Zen 5 (family 26) oneDNN is twice as fast, on Zen 4 (family 25) no faster. torch has it
for other formats, and for float32 as `mkldnn::_linear_pointwise`, an operator of its compiler's
without a gradient; here it gets one.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable

from nmt.machine.timing import is_faster, trial

ROWS, INPUTS, OUTPUTS = 128, 256, 512  # of the product tried: a decoding step of 32 sentences
FEWEST = 2**20  # multiplications: below, the 10 microseconds that oneDNN takes for itself decide
CLEARLY = 1.25  # times as fast; nearer to 1, chance would decide, and with it the last bits


class Linear(nn.Linear):
    """torch's linear layer, its product made by `product`."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]."""
        return product(x, self.weight, self.bias)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., inputs] by the rows of weight [outputs, inputs], plus bias: [..., outputs].

    What F.linear gives but for the last bits; under autocast in its format, as F.linear.
    """
    if not _is_for_onednn(x, weight, len(weight)):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, weight, bias)
    ):
        made: Tensor = _Product.apply(_rows(x), weight, bias)
        return made.view(*x.shape[:-1], -1)
    return _onednn(x, weight, bias)


def add_gradient(total: Tensor, of_outputs: Tensor, inputs: Tensor) -> None:
    """Add a weight's gradient to total [outputs, inputs], in the number format of total.

    It is of_outputs.T @ inputs, of [rows, outputs] and [rows, inputs].
    """
    if total.dtype == inputs.dtype and not _is_for_onednn(of_outputs, inputs, inputs.shape[1]):
        total.addmm_(of_outputs.T, inputs)
    else:
        total += gradient(of_outputs, inputs)


def gradient(of_outputs: Tensor, inputs: Tensor) -> Tensor:
    """That of a weight [outputs, inputs]: of_outputs.T @ inputs, as in `add_gradient`."""
    if _is_for_onednn(of_outputs, inputs, inputs.shape[1]):
        return _gradient(of_outputs, inputs)
    return of_outputs.T @ inputs


class _Product(Function):
    """oneDNN's product of rows [n, inputs], and the two of its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        by_x, by_weight, by_bias = None, None, None
        if ctx.needs_input_grad[0]:
            by_x = _onednn(g, weight.T)
        if ctx.needs_input_grad[1]:
            by_weight = _gradient(g, x)
        if ctx.needs_input_grad[2]:
            by_bias = g.sum(0)
        return by_x, by_weight, by_bias


def _gradient(of_outputs: Tensor, inputs: Tensor) -> Tensor:
    """of_outputs.T @ inputs; the first factor is copied to be read by rows, so the narrower is."""
    if of_outputs.shape[1] <= inputs.shape[1]:
        return _onednn(of_outputs.T, inputs.T)
    return _onednn(inputs.T, of_outputs.T).T


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not (weight.is_contiguous() or weight.T.is_contiguous()):
        weight = weight.contiguous()  # with gaps it would take hundreds of times as long
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return made


def _is_for_onednn(x: Tensor, other: Tensor, times: int) -> bool:
    """Whether this CPU multiplies both faster so: float32, each number of x so many times."""
    return (
        x.dtype == other.dtype == torch.float32
        and x.device.type == other.device.type == "cpu"
        and x.numel() * times >= FEWEST
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()  # a compiler chooses by itself
        and onednn_is_faster()
    )


@trial()
@torch.inference_mode()
def onednn_is_faster() -> bool:
    """Tell whether oneDNN makes products of float32 clearly faster than what torch takes itself.

    Tried once per process, in milliseconds. On AMD's Zen 5 it takes .45 of the time with AVX-512;
    on Zen 4, with AVX2 alone, and on Intel's processors, about the same.
    """

    x, weight, bias = factors()
    try:
        return is_faster(
            lambda: _onednn(x, weight, bias), lambda: F.linear(x, weight, bias), CLEARLY
        )
    except (RuntimeError, AttributeError):  # this torch has no such operator
        return False


def factors() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [rows, inputs], weight and bias of a product to try ways on, the same always."""
    made = torch.Generator().manual_seed(0)
    shapes = (ROWS, INPUTS), (OUTPUTS, INPUTS), (OUTPUTS,)
    x, weight, bias = (torch.randn(shape, generator=made) for shape in shapes)
    return x, weight, bias
