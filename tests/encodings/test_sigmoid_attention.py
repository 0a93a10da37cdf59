"""Keys that are weighed one by one, against the formula in loops."""

import pytest
import torch

from nmt.encodings.biases.sliding_window import SlidingWindow
from nmt.encodings.softmax.sigmoid_attention import SigmoidAttention
from tests.encodings.attending import attend, dims, pass_over, qkv


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("keys", [0, 3])
def test_equals_the_formula_in_loops(site: str, keys: int) -> None:
    e, (q, k, v) = SigmoidAttention(dims(site), keys).double(), qkv(7, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    for i in range(7):
        n = i + 1 if site == "decoder" else 7
        for j in range(7):
            wanted = 1 / (1 + (keys or n) * torch.exp(-scores[:, :, i, j]))
            torch.testing.assert_close(p[:, :, i, j], wanted if j < n else 0 * wanted)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_keys_outside_of_a_window_do_not_count(site: str) -> None:
    e, (q, k, v) = [SlidingWindow(dims(site), 2), SigmoidAttention(dims(site))], qkv(9, dims())
    scores, p, _ = attend(e, q, k, v, pass_over(9, site))
    near = slice(2, 5 if site == "decoder" else 7)  # of the fifth token
    wanted = 1 / (1 + (near.stop - 2) * torch.exp(-scores[:, :, 4, near]))
    torch.testing.assert_close(p[:, :, 4, near], wanted)
    torch.testing.assert_close(p[:, :, 4].sum(-1), wanted.sum(-1))
