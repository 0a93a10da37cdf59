"""Sliding windows and hard-coded Gaussians in plain loops; one query at a time; gradients."""

import math

import pytest
import torch
from torch import Tensor

from nmt.encodings.biases.sliding_window import SlidingWindow
from nmt.encodings.softmax.gaussian import Gaussian
from tests.encodings.attending import attend, dims, pass_over, qkv

N = 9
Numbers = list[list[float]]


def rows_of(site: str, i: int) -> range:
    return range(i + 1 if site == "decoder" else N)


def windowed(q: Tensor, k: Tensor, v: Tensor, site: str, size: int) -> Tensor:
    """Outputs [rows, heads, n, head_dim]: each query has a softmax over the keys near it."""
    outputs = []
    for i in range(N):
        near = [j for j in rows_of(site, i) if abs(j - i) <= size]
        products = [(q[:, :, i] * k[:, :, j]).sum(-1) / math.sqrt(q.shape[-1]) for j in near]
        shares = torch.stack(products).softmax(0)
        outputs.append(sum(p[..., None] * v[:, :, j] for p, j in zip(shares, near, strict=True)))
    return torch.stack(outputs, 2)


def densities(site: str, head: int, offset: float, std: float, ratio: float = 1.0) -> Numbers:
    centre = -offset if head == 0 else {"encoder": offset, "decoder": 0.0, "cross": offset}[site]
    p = [[0.0] * N for _ in range(N)]
    for i in range(N):
        for j in rows_of(site, i):
            z = (j - (ratio * i + centre)) / std
            p[i][j] = math.exp(-0.5 * z * z) / (std * math.sqrt(2 * math.pi))
    return p


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_windows_equal_a_softmax_over_near_keys(site: str, size: int) -> None:
    e, (q, k, v) = SlidingWindow(dims(site), size).double(), qkv(N, dims())
    inputs = [t.requires_grad_() for t in (q, k, v)]
    wanted = windowed(q, k, v, site, size)
    _, _, o = attend(e, q, k, v, pass_over(N, site), layer=1)
    torch.testing.assert_close(o, wanted)
    found, loops = (torch.autograd.grad(t.square().sum(), inputs) for t in (o, wanted))
    torch.testing.assert_close(found, loops)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(("offset", "std"), [(1.0, 1.0), (2.5, 0.7)])
def test_weights_are_densities_whatever_the_words(site: str, offset: float, std: float) -> None:
    e, (q, k, v) = Gaussian(dims(site), offset, std).double(), qkv(N, dims())
    q.requires_grad_(), v.requires_grad_()
    _, p, o = attend(e, q, k, v, pass_over(N, site), layer=1)
    wanted = [densities(site, head, offset, std) for head in range(2)]
    torch.testing.assert_close(p, torch.tensor([wanted] * 2, dtype=torch.float64))
    o.sum().backward()
    assert q.grad is None and v.grad is not None
    torch.testing.assert_close(v.grad, p.sum(2)[..., None].expand_as(v))


@pytest.mark.parametrize("ratio", [1.0, 1.25])
def test_across_the_centre_follows_the_source(ratio: float) -> None:
    e, (q, k, v) = Gaussian(dims("cross"), 1.5, 0.8, ratio).double(), qkv(N, dims())
    wanted = [densities("cross", head, 1.5, 0.8, ratio) for head in range(2)]
    _, p, _ = attend(e, q, k, v, pass_over(N, "cross"))
    torch.testing.assert_close(p, torch.tensor([wanted] * 2, dtype=torch.float64))
    assert e.relative == (ratio == 1)
    within = Gaussian(dims("encoder"), 1.5, 0.8, ratio)
    assert within.relative and within.ratio == 1  # one text has one count
