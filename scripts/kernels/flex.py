"""torch's FlexAttention with what the kernel adds to scores by distance, or with a bias.

It has neither dropout nor a place for Shaw's vectors of values, whose gradients need the sums of
probabilities by distance. So it may stand in for keys alone, and for T5, ALiBi, KERPLE and FIRE.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import flex_attention as flex

Attend = Callable[..., Any]  # flex_attention, compiled or not


def compiled() -> Attend:
    """FlexAttention as one kernel for each shape; only a GPU has its backward pass."""
    torch.compiler.reset()  # it would compile one function some times, and then no more
    return torch.compile(flex.flex_attention, dynamic=False)


def by_keys(
    q: Tensor, k: Tensor, v: Tensor, tau: int, keys: Tensor, causal: bool, attend: Attend
) -> Tensor:
    """As `nmt.kernels.relative.attention` with these keys, no values, and the usual scale."""
    # [batch, heads, query, 2 tau + 1], in float32: their gradients are atomic additions
    products = (q @ keys.mT.to(q.dtype)).float() * q.shape[-1] ** -0.5

    def score(s: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return s + products[batch, head, query, (key - query).clamp(-tau, tau) + tau]

    return _attention(q, k, v, score, causal, attend)


def by_bias(
    q: Tensor, k: Tensor, v: Tensor, tau: int, bias: Tensor, causal: bool, attend: Attend
) -> Tensor:
    """Attention with bias [heads, 2 tau + 1] by clipped distance."""

    def score(s: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return s + bias[head, (key - query).clamp(-tau, tau) + tau]

    return _attention(q, k, v, score, causal, attend)


def masked(q: Tensor, k: Tensor, v: Tensor, tau: int, bias: Tensor, causal: bool) -> Tensor:
    """The same by torch's fused attention, which reads a mask of [heads, query, key]."""
    query, key = (torch.arange(x.shape[2], device=q.device) for x in (q, k))
    distance = key - query[:, None]
    mask = bias[:, distance.clamp(-tau, tau) + tau].to(q.dtype)
    mask = mask.masked_fill(distance > 0, float("-inf")) if causal else mask
    return F.scaled_dot_product_attention(q, k, v, mask)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, score: Callable[..., Tensor], causal: bool, attend: Attend
) -> Tensor:
    n, m = q.shape[2], k.shape[2]
    mask = _past(n, m, q.device) if causal else None
    out: Tensor = attend(q, k, v, score_mod=score, block_mask=mask)
    return out


@cache
def _past(queries: int, keys: int, device: torch.device) -> flex.BlockMask:
    def allowed(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return key <= query

    return flex.create_block_mask(allowed, None, None, queries, keys, device=str(device))
