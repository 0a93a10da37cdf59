"""Softmax over the allowed keys, and the precision of scores."""

import torch
from torch import Tensor


def softmax(e: Tensor, allowed: Tensor | None) -> Tensor:
    """Weights of e [batch, heads, query, key] over the keys where `allowed` is true; None: all."""
    return masked(e, allowed).softmax(-1)


def masked(e: Tensor, allowed: Tensor | None) -> Tensor:
    """Give forbidden keys a finite minimum: a row that may see nothing must not become NaN."""
    return e if allowed is None else e.masked_fill(~allowed, torch.finfo(e.dtype).min)


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32, or in float64 where it is: bfloat16 is too coarse for sums of many numbers."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
