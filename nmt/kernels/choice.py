"""The one place that says where a kernel serves, and in which blocks it works.

No GPU was there to measure. The blocks are those with which the compiler for an A100
and an H100 needs few registers beyond the 255 of a thread (`python -m scripts.kernels compile`);
`python -m scripts.kernels time` measures the kernels and the formulas that they replace.
"""

import torch
from torch import Tensor

LOSS, RELATIVE = "the loss", "relative attention"  # names of kernels
WIDTHS = (16, 32, 64, 128)  # of a head, in numbers
MOST_TAU = 128  # beyond, what is kept by distance outgrows queries and keys

verified: dict[str, tuple[str, torch.dtype]] = {}
"""Kernel -> kind of device and number format in which it serves; set by `selftest.serve` alone."""


def serves(kernel: str, x: Tensor, learning: bool) -> bool:
    """Whether a kernel computes with x where gradients may be asked for (`learning`).

    Elsewhere formulas do, so that what a model translates does not depend on what was trained by
    the same process before.
    """
    return learning and verified.get(kernel) == (x.device.type, x.dtype)


def fits_relative(q: Tensor, k: Tensor, v: Tensor, tau: int) -> bool:
    """Whether `nmt.kernels.relative` has a form for attention of q, k and v [.., n, head_dim].

    With one vector for each distance, clipped to tau. Where it has not, plain products, a gather
    and a sum by row compute it (`nmt.encodings.by_row`).
    """
    alike = q.dtype == k.dtype == v.dtype and q.shape[-1] == k.shape[-1] == v.shape[-1]
    return alike and q.shape[-1] in WIDTHS and 1 <= tau <= MOST_TAU


def block(n: int, width: int) -> int:
    """How many of n queries or keys of a head's width a program takes: a power of two from 16."""
    return min(max(16, 1 << (n - 1).bit_length()), 64 if width <= 64 else 32)


def warps(queries: int, keys: int) -> int:
    """Warps of 32 threads for a program with blocks of these sizes."""
    pairs = queries * keys
    return 8 if pairs > 2048 else 4 if pairs > 256 else 2
