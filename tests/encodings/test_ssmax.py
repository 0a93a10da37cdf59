"""Softmax that sharpens with the number of keys."""

import math

import pytest
import torch

from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.site import Encodings
from nmt.encodings.softmax.sigmoid_attention import SigmoidAttention
from nmt.encodings.softmax.ssmax import Ssmax
from nmt.encodings.vectors.relative import Relative
from tests.encodings.attending import attend, dims, pass_over, qkv


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_equals_the_formula_in_loops(site: str) -> None:
    torch.manual_seed(1)
    e, (q, k, v) = Ssmax(dims(site)).double(), qkv(7, dims())
    torch.nn.init.normal_(e.factor)
    scores = q @ k.mT / 2
    _, p, _ = attend(e, q, k, v, pass_over(7, site), layer=1)
    for h in range(2):
        for i in range(7):
            n = i + 1 if site == "decoder" else 7
            powers = n ** (e.factor[1, h] * scores[0, h, i, :n])
            torch.testing.assert_close(p[0, h, i, :n], powers / powers.sum())
            assert not p[0, h, i, n:].any()


def test_a_kernel_serves_it() -> None:
    assert Encodings([Ssmax(dims())]).fusible(0)


def test_products_with_the_query_are_sharpened_and_biases_are_not() -> None:
    e, (q, k, v) = Ssmax(dims(), start=0.5).double(), qkv(7, dims())
    vectors, biases = Relative(dims(), 2, value=False).double(), Alibi(dims()).double()
    context = pass_over(7)
    alone = attend(vectors, q, k, v, context)[0]
    scores, _, _ = attend([vectors, e, biases], q, k, v, context)
    log_n = torch.tensor(7.0).double().log()
    bias = biases.bias(0, context)
    assert bias is not None
    torch.testing.assert_close(scores, alone * 0.5 * log_n + bias)


def test_it_stands_with_what_replaces_softmax() -> None:
    one, (q, k, v) = Ssmax(dims()).double(), qkv(7, dims())
    context = pass_over(7)
    e, p, _ = attend([one, SigmoidAttention(dims())], q, k, v, context)
    torch.testing.assert_close(p, (e - math.log(7)).sigmoid())


def test_a_row_that_may_see_nothing_spoils_no_gradient() -> None:
    e, (q, k, v) = Ssmax(dims()).double(), qkv(7, dims())
    padded = pass_over(7)
    padded.allowed = (torch.arange(7) < torch.tensor([7, 0])[:, None])[:, None, None]
    attend(e, q, k, v, padded)[2].sum().backward()
    assert e.factor.grad is not None and e.factor.grad.isfinite().all()
