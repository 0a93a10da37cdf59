"""Kernels serve only after they were compared with plain formulas on the device that trains.

No GPU was there when they were written. What a driver, a compiler or a version of Triton makes of
them is therefore looked at before each training that asks for them (trainer.kernels=true).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import UserError, where_raised
from nmt.kernels import choice, relative
from nmt.kernels.crossentropy import COLUMNS, smoothed_

log = logging.getLogger(__name__)

# differences that are rounding, over the largest number, or over 1
BOUNDS = {"float32": 1e-4, "tf32": 1e-2, "bfloat16": 5e-2}
BATCH, HEADS, TAU = 2, 2, 16
LENGTHS = 100, 24, 12  # in several blocks of queries and of keys, and in one of 32 and of 16
RATE = 0.25  # of dropout
TOKENS, VOCAB, SMOOTHING = 6, 5000, 0.1  # more than one block of the vocabulary

Difference = Callable[[torch.device, torch.dtype], float]


def serve(
    wanted: bool,
    device: torch.device,
    precision: str,
    head_dim: int,
    all_reduce: Callable[[Tensor, str], Tensor] = lambda tensor, op: tensor,
) -> None:
    """Let kernels serve, if wanted, where they compute on the device what formulas do.

    precision: float32, tf32 or bfloat16, as training computes. all_reduce: `World.all_reduce`, as a
    kernel serves on all ranks or on none. For a kernel that differs, raises an error or does not
    compile there is a warning, and formulas serve. So they do instead of relative attention in
    exact float32, which no GPU multiplies fast, and for which the compiler takes minutes. The
    caller's random numbers stay the same. Raises UserError where an error has left the GPU useless.
    """
    choice.verified.clear()
    if not wanted:
        return
    number_format = torch.bfloat16 if precision == "bfloat16" else torch.float32
    kernels: dict[str, Difference] = {
        choice.LOSS: loss_difference,
        choice.RELATIVE: partial(relative_difference, width=head_dim),
    }
    if precision == "float32" or head_dim not in choice.WIDTHS:
        del kernels[choice.RELATIVE]
    faults = {
        kernel: _fault(difference, device, number_format, BOUNDS[precision])
        for kernel, difference in kernels.items()
    }
    failed = all_reduce(torch.tensor([fault is not None for fault in faults.values()]).int(), "MAX")
    for (kernel, fault), anywhere in zip(faults.items(), failed.tolist(), strict=True):
        if anywhere:
            reason = fault or "it failed on another rank"
            log.warning("trainer.kernels: formulas replace the kernel of %s: %s", kernel, reason)
        else:
            choice.verified[kernel] = device.type, number_format


def _fault(
    difference: Difference, device: torch.device, number_format: torch.dtype, bound: float
) -> str | None:
    """Why a kernel cannot serve, if so."""
    gpus = [device] if device.type == "cuda" else []
    try:
        with (
            torch.random.fork_rng(gpus),
            torch.enable_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            torch.manual_seed(1)
            largest = difference(device, number_format)
    except Exception as error:  # of any kind: those of compilers, and of what is not installed
        _check_usable(gpus, error)
        return where_raised(error)
    return None if largest < bound else f"it differs by {largest:.1e} of the largest number"


def _check_usable(gpus: list[torch.device], error: Exception) -> None:
    """Raise UserError where a GPU computes no more: after an illegal access all calls fail."""
    try:
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
    except RuntimeError:
        raise UserError(
            "trainer.kernels=true: a kernel left the GPU useless for this process; set "
            f"trainer.kernels=false ({where_raised(error)})"
        ) from error


def loss_difference(device: torch.device, number_format: torch.dtype) -> float:
    """The largest of the loss, the likelihoods and the gradient of the logits."""
    logits = torch.randn(TOKENS, VOCAB, device=device).to(number_format)
    bias, target = torch.randn(VOCAB, device=device), torch.randint(VOCAB, (TOKENS,), device=device)
    x = (logits.float() + bias).requires_grad_()
    nll = F.cross_entropy(x, target, reduction="none")
    losses = F.cross_entropy(x, target, reduction="none", label_smoothing=SMOOTHING)
    losses.sum().backward()
    rows, padded = (F.pad(t, (0, -VOCAB % COLUMNS)) for t in (logits, bias))
    padded[VOCAB:] = -torch.inf
    by_kernel = smoothed_(rows, padded, target, VOCAB, SMOOTHING)
    return _largest([*by_kernel, rows[:, :VOCAB]], [losses, nll, x.grad])


def relative_difference(device: torch.device, number_format: torch.dtype, width: int) -> float:
    """The largest of outputs and gradients, in an encoder with padding and in a decoder.

    Of heads of this width, and texts of all sizes of blocks: each is a compilation of its own.
    """
    return max(
        _of_attention(device, number_format, width, length, causal)
        for length in LENGTHS
        for causal in (False, True)
    )


def _of_attention(
    device: torch.device, number_format: torch.dtype, width: int, length: int, causal: bool
) -> float:
    """With dropout, of which the formulas drop the same as the kernel."""
    shape = BATCH, HEADS, length, width
    *start, by_o = (torch.randn(shape, device=device).to(number_format) for _ in range(4))
    keys, values = (torch.randn(1, 2 * TAU + 1, width, device=device) for _ in range(2))
    allowed = None
    if not causal:
        allowed = torch.ones(BATCH, 1, 1, length, dtype=torch.bool, device=device)
        allowed[1, ..., length // 2 :] = False

    def by_kernel(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        torch.manual_seed(2)  # drops the same at each call
        return relative.attention(
            q, k, v, TAU, keys, values,
            scale=width**-0.5, allowed=allowed, causal=causal, rate=RATE,
        )  # fmt: skip

    # where values are the rows of a unit matrix, outputs are probabilities
    units = torch.eye(length, device=device, dtype=number_format).split(width, 1)
    padded = (F.pad(unit, (0, width - unit.shape[1])).expand(shape) for unit in units)
    p = torch.cat([by_kernel(start[0], start[1], unit, keys, values * 0) for unit in padded], 3)[
        ..., :length
    ]
    dropped = p == 0

    def by_formulas(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        at = torch.arange(length, device=device)
        distance = at - at[:, None]
        rows = torch.arange(-TAU, TAU + 1, device=device)
        row = (distance.clamp(-TAU, TAU)[..., None] == rows).float()  # [query, key, row]
        s = q @ k.mT + torch.einsum("bhqd,qkd->bhqk", q, row @ keys[0])
        s = s.masked_fill(distance > 0 if allowed is None else ~allowed, -torch.inf)
        p = (s * width**-0.5).softmax(-1).masked_fill(dropped, 0) / (1 - RATE)
        return p @ v + torch.einsum("bhqk,qkd->bhqd", p, row @ values[0])

    results = []
    for attend in (by_kernel, by_formulas):
        kind = number_format if attend is by_kernel else torch.float32
        q, k, v = (x.detach().to(kind).requires_grad_() for x in start)
        leaves = q, k, v, keys.requires_grad_(), values.requires_grad_()
        o = attend(*leaves)
        results.append([o, *torch.autograd.grad(o, leaves, by_o.to(o.dtype))])
    return _largest(*results)


def _largest(actual: Sequence[Tensor], expected: Sequence[Tensor | None]) -> float:
    """The largest difference, over the largest number of its tensor, or over 1."""
    worst = 0.0
    for one, other in zip(actual, expected, strict=True):
        assert other is not None
        one, other = one.detach().float(), other.detach().float()
        largest = max(float(other.abs().max()), 1.0)
        difference = float((one - other).abs().max()) / largest
        worst = max(worst, difference if difference == difference else float("inf"))
    return worst
