"""Shares of a stick against products in loops, in each site, and with hardly any left."""

import pytest
import torch
from torch import Tensor

from nmt.encodings.context import Context
from nmt.encodings.stick_breaking import StickBreaking
from tests.encodings.attending import attend, dims, pass_over, qkv


def order(site: str, head: int, i: int, n: int, itself: bool) -> list[int]:
    """The keys that query i sees, in the order in which they break the stick."""
    if site == "cross":
        return [*reversed(range(n))]
    own = [i] * itself
    if site == "encoder" and head == 1:
        return [*own, *range(i + 1, n)]
    return [*own, *reversed(range(i))]


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("remainder", [False, True])
def test_equals_the_formula_in_loops(site: str, itself: bool, remainder: bool) -> None:
    e, (q, k, v) = StickBreaking(dims(site), None, itself, remainder).double(), qkv(7, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    wanted = torch.zeros_like(p)
    for head in range(2):
        for i in range(7):
            left = torch.ones(2, dtype=torch.float64)
            for j in order(site, head, i, 7, itself):
                beta = 1 / (1 + torch.exp(-scores[:, head, i, j]))
                wanted[:, head, i, j] = beta * left
                left = left * (1 - beta)
            if remainder and site != "cross":
                wanted[:, head, i, i] += left
    torch.testing.assert_close(p, wanted)


def test_one_query_at_a_time_and_beside_padding() -> None:
    e, (q, k, v) = StickBreaking(dims("decoder")).double(), qkv(7, dims())
    _, whole, _ = attend(e, q, k, v, pass_over(7, "decoder"))
    at = torch.arange(7)[None]
    for i in range(7):
        step = Context("decoder", at[:, i : i + 1], at[:, : i + 1], at[:, i : i + 1], rows=2)
        _, p, _ = attend(e, q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], step)
        torch.testing.assert_close(p, whole[:, :, i : i + 1, : i + 1])
    for site in ("encoder", "cross"):
        e, padded = StickBreaking(dims(site)), pass_over(7, site)
        padded.allowed = (torch.arange(7) < torch.tensor([7, 4])[:, None])[:, None, None]
        _, p, _ = attend(e, q, k, v, padded)
        alone = attend(e, q[1:, :, :4], k[1:, :, :4], v[1:, :, :4], pass_over(4, site, rows=1))[1]
        torch.testing.assert_close(p[1:, :, :4, :4], alone)
        assert not p[1, :, :, 4:].any()


def test_long_sticks_keep_their_digits_and_gradients() -> None:
    """600 shares of one half: the last is 2^-600, which no float32 product of them could tell."""

    def weights(e: Tensor) -> Tensor:
        return StickBreaking(dims("cross")).normalise(e, 0, pass_over(600, "cross"))

    last = weights(torch.zeros(1, 2, 600, 600, dtype=torch.float64))[0, 0, 0]
    torch.testing.assert_close(last.log2(), -torch.arange(600, 0, -1, dtype=torch.float64))
    extreme = torch.full((1, 2, 600, 600), 1e4).requires_grad_()
    weights(torch.where(torch.arange(600) % 2 == 0, extreme, -extreme)).sum().backward()
    assert extreme.grad is not None and extreme.grad.isfinite().all()


def test_the_encoder_needs_an_even_number_of_heads() -> None:
    with pytest.raises(ValueError, match=r"3 heads cannot be halved.*where="):
        StickBreaking(dims(heads=3))
    StickBreaking(dims("decoder", heads=3))
