"""Scores and biases of all heads through an MLP, pair by pair, in loops."""

from typing import Any

import pytest
import torch

from nmt.encodings.biases.dape import BIASES, Dape
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.site import Encodings
from nmt.encodings.vectors.deberta import Deberta
from tests.encodings.attending import attend, dims, pass_over, qkv


def made(site: str, bias: Any = "kerple_log") -> Dape:
    torch.manual_seed(1)
    e = Dape(dims(site), bias, width=5).double()
    for p in e.parameters():
        torch.nn.init.normal_(p)
    return e


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("bias", BIASES)
def test_equals_the_formula_in_loops(site: str, bias: Any) -> None:
    e, (q, k, v) = made(site, bias), qkv(6, dims())
    context = pass_over(6, site)
    found, _, _ = attend(e, q, k, v, context, layer=1)
    biases = attend(e.inner, q, k, v, context, layer=1)[0] - q @ k.mT / 2
    w1, b1, w2, b2 = e.mixers[1].parameters()
    for i in range(6):
        for j in range(6):
            scores = (q[:, :, i] * k[:, :, j]).sum(-1) / 2  # [batch, heads]
            x = torch.cat([scores, biases[:, :, i, j]], -1)
            hidden = x @ w1.T + b1
            hidden = torch.where(hidden > 0, hidden, 0.01 * hidden)
            wanted = x[:, :2] + x[:, 2:] + hidden @ w2.T + b2
            torch.testing.assert_close(found[:, :, i, j], wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", BIASES)
def test_a_model_in_few_bits_computes_the_same(bias: Any, dtype: torch.dtype) -> None:
    """Scores and biases are float32, the MLP's weights are not."""
    e, (q, k, v) = made("encoder", bias), qkv(6, dims())
    wanted = attend(e, q, k, v, pass_over(6))[0]
    q, k, v = (t.to(dtype) for t in (q, k, v))
    found = attend(e.to(dtype), q, k, v, pass_over(6))[0]
    assert (found - wanted).abs().max() < 4 * torch.finfo(dtype).eps * wanted.abs().max()


def test_it_composes_with_what_leaves_the_scale_and_products() -> None:
    assert Encodings([Rotary(dims()), made("encoder")]).relative
    with pytest.raises(ValueError, match="more than one entry sets the scale"):
        Encodings([Deberta(dims()), made("encoder")])
