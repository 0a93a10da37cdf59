"""PaTH against products of matrices in plain loops: outputs, gradients and cached steps."""

import math

import pytest
import torch
from torch import Tensor

from nmt.encodings.rotary.path_attention import PathAttention
from tests.encodings.attending import attend, dims, drawn, pass_over, qkv

N = 7


def made(site: str) -> PathAttention:
    e: PathAttention = drawn(PathAttention(dims(site), rank=3))
    e.name = "path_attention"
    return e


def transformation(e: PathAttention, x: Tensor, t: int, layer: int, head: int) -> Tensor:
    """H_t [head_dim, head_dim] of one row of inputs x [n, dim]."""
    width = e.dims.head_dim
    direction = torch.zeros(width, dtype=x.dtype)
    for ago in range(min(t, 2) + 1):
        before = x[t - ago] @ e.down[layer, 0] @ e.up[layer, 0]
        tap = e.taps[layer, head, 2 - ago]
        direction = direction + tap * before[head * width : (head + 1) * width]
    direction = direction / (1 + torch.exp(-direction))
    w = direction / direction.square().sum().sqrt()
    beta = 2 / (1 + torch.exp(-x[t] @ e.beta[layer, 0, :, head] - e.beta_bias[layer, head]))
    return torch.eye(width, dtype=x.dtype) - beta * torch.outer(w, w)


def between(site: str, i: int, j: int) -> list[int]:
    """The words from query i to key j, in the order of the product."""
    return [*range(i, j, -1)] if j <= i else [*range(i, j)] if site == "encoder" else []


def scores_in_loops(e: PathAttention, q: Tensor, k: Tensor, layer: int) -> Tensor:
    rows = []
    for x, qs, ks in zip(q.transpose(1, 2).flatten(2), q, k, strict=True):
        for head in range(2):
            h = [transformation(e, x, t, layer, head) for t in range(N)]
            for i in range(N):
                for j in range(N):
                    key = ks[head, j]
                    for t in reversed(between(e.dims.site, i, j)):
                        key = h[t] @ key
                    rows.append(qs[head, i] @ key / math.sqrt(e.dims.head_dim))
    return torch.stack(rows).view(len(q), 2, N, N)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_equals_products_of_matrices_in_loops(site: str) -> None:
    e, (q, k, v) = made(site), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, k)]
    context = pass_over(N, site)
    found, p, _ = attend(e, q, k, v, context, layer=1)
    wanted = scores_in_loops(e, q, k, 1)
    torch.testing.assert_close(found, wanted)
    if context.allowed is not None:
        wanted = wanted.masked_fill(~context.allowed, -torch.inf)
    torch.testing.assert_close(p, wanted.softmax(-1))
    learned = [*inputs, *e.parameters()]
    draw = torch.randn_like(v)
    one, other = (
        torch.autograd.grad((share @ draw).square().sum(), learned)
        for share in (p, wanted.softmax(-1))
    )
    torch.testing.assert_close(one, other)
    assert all(g.any() for g in one)


def test_of_a_strength_of_zero_nothing_is_taken() -> None:
    e, (q, k, v) = made("encoder"), qkv(N, dims())
    with torch.no_grad():
        e.beta_bias.fill_(-1e9)
    found, _, _ = attend(e, q, k, v, pass_over(N))
    torch.testing.assert_close(found, q @ k.mT / 2)
