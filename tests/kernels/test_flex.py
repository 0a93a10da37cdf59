"""FlexAttention computes what formulas and mask do; forward alone, as on a CPU it has no more."""

from functools import partial

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from scripts.kernels import flex
from scripts.kernels.grid import Given, Shape, plain

N, TAU, WIDTH = 20, 3, 16


@pytest.mark.parametrize("causal", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_keys_and_biases_by_distance(causal: bool) -> None:
    made = partial(torch.randn, generator=torch.Generator().manual_seed(1))
    q, k, v = (made(2, 3, N, WIDTH) for _ in range(3))
    keys, bias = made(1, 2 * TAU + 1, WIDTH), made(3, 2 * TAU + 1)
    given, shape = Given(q, k, v, keys, None, None), Shape(N, N, TAU, WIDTH, "keys", causal=causal)
    by_keys = flex.by_keys(q, k, v, TAU, keys, causal, flex_attention)
    assert torch.allclose(by_keys, plain(given, shape), atol=1e-5)
    by_bias = flex.by_bias(q, k, v, TAU, bias, causal, flex_attention)
    assert torch.allclose(by_bias, flex.masked(q, k, v, TAU, bias, causal), atol=1e-5)
    assert not torch.allclose(by_bias, by_keys, atol=1e-2)
