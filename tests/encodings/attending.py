"""Attention over given q, k, v in their own precision, and the loops that it is compared with."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from nmt.encodings.base import Dims, Encoding
from nmt.encodings.context import INDICES, Context, Positions, causal
from nmt.encodings.site import SiteEncodings

Logit = Callable[[Tensor, Tensor, int, int, int, int], Tensor]
"""`(q_i, k_j, layer, head, i, j) -> e_ij` of one pair, by the formula of a paper."""

Value = Callable[[int, int, int, int], Tensor]
"""`(layer, head, i, j) -> vector` that is added to v_j for query i."""


def dims(
    site: str = "encoder",
    heads: int = 2,
    head_dim: int = 4,
    layers: int = 2,
    positions: Positions = INDICES,
) -> Dims:
    """Small sizes."""
    return Dims(site, layers, heads, heads * head_dim, head_dim, 30, positions)


def pass_over(n: int, site: str = "encoder", rows: int = 2) -> Context:
    """The context of a whole sequence of n tokens; a decoder's is causal."""
    at = torch.arange(n)[None]
    allowed = causal(n, n, at.device) if site == "decoder" else None
    return Context(site, at, at, at, rows=rows, allowed=allowed)


def qkv(n: int, sizes: Dims, rows: int = 2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random q, k, v [rows, heads, n, head_dim] in float64."""
    draw = torch.Generator().manual_seed(seed)
    shape = (3, rows, sizes.heads, n, sizes.head_dim)
    q, k, v = torch.randn(shape, generator=draw, dtype=torch.float64)
    return q, k, v


def randomise(module: Any, deviation: float = 0.5) -> Any:
    """Make parameters float64, and draw them from seed 1 as large as can be seen; returns it."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in module.double().parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=torch.float64) * deviation)
    return module


def attend(
    entries: Encoding | list[Encoding],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    layer: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """(logits before the mask, probabilities, outputs [rows, heads, n, head_dim]).

    `project` hooks get projections that return q, k, v whatever they are given; a hook that adds
    to the inputs of the projections shows in tests of the whole model.
    """
    both = SiteEncodings(entries if isinstance(entries, list) else [entries])
    x = q.transpose(1, 2).flatten(2)
    q, k, v = both.project(lambda *_: (q, k, v), x, x, x, layer, context)
    e = both.scores(q, k, layer, context) * (both.score_scale(layer) or v.shape[-1] ** -0.5)
    bias = both.bias(layer, context)
    e = e if bias is None else e + bias
    p = both.normalise(e, layer, context).to(v.dtype)  # as attention does
    return e, p, both.outputs(p @ v, x, p, layer, context)


def equals_loops(
    e: Encoding, logit: Logit, value: Value | None = None, n: int = 9, atol: float = 1e-11
) -> None:
    """Compare logits and outputs with plain loops over layers, heads, queries and their keys."""
    q, k, v = qkv(n, e.dims)
    site, layers, heads = e.dims.site, range(e.dims.layers), range(e.dims.heads)
    for layer in layers:
        got, _, out = attend(e, q, k, v, pass_over(n, site), layer)
        for row, h, i in product(range(2), heads, range(n)):
            seen = range(i + 1 if site == "decoder" else n)
            pairs = [logit(q[row, h, i], k[row, h, j], layer, h, i, j) for j in seen]
            wanted, values = torch.stack(pairs), v[row, h, : len(seen)]
            if value is not None:
                values = values + torch.stack([value(layer, h, i, j) for j in seen])
            assert torch.allclose(got[row, h, i, : len(seen)], wanted, atol=atol)
            assert torch.allclose(out[row, h, i], wanted.softmax(0) @ values, atol=atol)


def pe(position: float, width: int) -> Tensor:
    """Vaswani et al. 2017, a number at a time, in float64."""
    w = [10000 ** (-2 * b / width) for b in range(width // 2)]
    waves = [f(position * x) for x in w for f in (math.sin, math.cos)]
    return torch.tensor(waves, dtype=torch.float64)
