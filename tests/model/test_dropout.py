"""Dropout: how many elements, which mean, whose random numbers."""

import pytest
import torch

from nmt.model.layers import dropout


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_of_zeros_and_the_mean(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    x = torch.ones(500, 401, dtype=dtype)  # an odd size: the last draw is used in part
    y = dropout(x, p).float()
    zeros = (y == 0).float()
    sigma = (p * (1 - p) / x.numel()) ** 0.5
    assert abs(float(zeros.mean()) - p) < 4 * sigma + 1 / 65536
    for part in (zeros[:, i::4] for i in range(4)):  # each quarter of a draw
        assert abs(float(part.mean()) - p) < 8 * sigma
    assert y[y != 0].unique().numel() == 1
    assert abs(float(y.max()) * (1 - p) - 1) < (1e-4 if dtype == torch.float32 else 0.01)


def test_neighbours_are_independent() -> None:
    torch.manual_seed(4)
    zeros = (dropout(torch.ones(100_000), 0.3) == 0).float()
    for distance in range(1, 9):
        both = float((zeros[distance:] * zeros[:-distance]).mean())
        assert abs(both - 0.09) < 0.005


def test_gradients_pass_where_elements_did() -> None:
    x = torch.randn(64, 32, requires_grad=True)
    y = dropout(x, 0.25)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, y)


def test_the_seed_decides() -> None:
    x, found = torch.ones(1000), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(dropout(x, 0.5))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_nothing_is_drawn_where_nothing_is_dropped() -> None:
    before, x = torch.get_rng_state(), torch.ones(5)
    assert dropout(x, 0.0) is x and dropout(x, 0.5, training=False) is x
    assert torch.equal(torch.get_rng_state(), before)
