"""Shares of a stick against products in loops, in each site, and with hardly any left."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.checks.example import perturbed
from nmt.checks.parity import measure
from nmt.config.settings import Settings
from nmt.encodings.softmax.stick_breaking import StickBreaking
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
    e, (q, k, v) = StickBreaking(dims(site), itself, remainder).double(), qkv(7, dims())
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


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("itself", [False, True])
def test_what_is_left_goes_to_a_learned_vector_in_loops(site: str, itself: bool) -> None:
    e = StickBreaking(dims(site), itself, remainder_vector=True).double()
    assert e.vector is not None and e.vector.shape == (2, 2, 1, 4) and not e.vector.any()
    torch.nn.init.normal_(e.vector)
    q, k, v = qkv(7, dims())
    scores, _, o = attend(e, q, k, v, pass_over(7, site), layer=1)
    wanted = torch.zeros_like(o)
    for head in range(2):
        for i in range(7):
            left = torch.ones(2, 1, dtype=torch.float64)
            for j in order(site, head, i, 7, itself):
                beta = 1 / (1 + torch.exp(-scores[:, head, i, j, None]))
                wanted[:, head, i] += beta * left * v[:, head, j]
                left = left * (1 - beta)
            wanted[:, head, i] += left * e.vector[1, head, 0]
    torch.testing.assert_close(o, wanted)


def test_what_is_left_is_decoded_with_a_cache(settings_of: Callable[..., Settings]) -> None:
    words = ["remainder_vector=true", "where=[encoder,decoder,cross]"]
    chosen = [f"encoding.stick_breaking.{word}" for word in words]
    settings = settings_of("model=tiny", "encoding=stick_breaking", *chosen)
    cells = list(measure(perturbed(settings), tokens=10, precisions=["float32"]))
    assert len(cells) == 6 and all(cell.passed for cell in cells)


def test_what_is_left_is_that_of_before_dropout() -> None:
    e, (q, k, v) = StickBreaking(dims("cross"), remainder_vector=True).double(), qkv(7, dims())
    assert e.vector is not None
    torch.nn.init.ones_(e.vector)
    context = pass_over(7, "cross")
    p = e.normalise(q @ k.mT, 0, context)
    o = e.outputs(v, q, torch.zeros_like(p), 0, context)
    torch.testing.assert_close(o - v, (1 - p.sum(-1, keepdim=True)).expand_as(v))


def test_what_is_left_goes_to_one_place() -> None:
    with pytest.raises(ValueError, match="what is left goes to one of the two"):
        StickBreaking(dims("decoder"), remainder=True, remainder_vector=True)


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
