"""Tying, norms, the cache, dropout, and what attention and its kernel compute."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.encodings.base import Encoding
from nmt.encodings.site import SiteEncodings
from nmt.encodings.vectors.relative import Relative
from nmt.model import layers
from nmt.model.cache import Cache
from nmt.model.layers import Attention, AttentionRecord, dropout, watching
from nmt.model.transformer import Transformer
from tests.encodings.attending import dims, pass_over

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def test_tied_matrices_are_one(tiny: Make) -> None:
    model = tiny("model.tie=all", "segmenter.shared_vocabulary=true")
    assert model.output.weight is model.target_embedding.weight is model.source_embedding.weight
    model = tiny("model.tie=target")
    assert model.output.weight is model.target_embedding.weight
    assert model.source_embedding.weight is not model.target_embedding.weight


def test_post_norm_leaves_each_layer_normalised(tiny: Make, ids: Ids) -> None:
    model = tiny("model.norm=post")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            torch.nn.init.ones_(module.weight)
            torch.nn.init.zeros_(module.bias)
    x = model.encode(ids(2, 5))[0]
    assert torch.allclose(x.mean(-1), torch.zeros(2, 5), atol=1e-5)
    assert torch.allclose(x.var(-1, unbiased=False), torch.ones(2, 5), atol=1e-2)


def test_a_cache_grows_and_keeps_what_it_had() -> None:
    cache = Cache()
    parts = [torch.randn(2, 3, n, 4) for n in (1, 20, 1, 40)]
    for part in parts:
        k, v = cache.append(part, -part)
    assert torch.equal(k, torch.cat(parts, 2)) and torch.equal(v, -k)
    cache.reorder(torch.tensor([1, 1, 0]))
    assert torch.equal(cache.all()[0], k[[1, 1, 0]])


@pytest.mark.parametrize("p, dtype", [(0.1, torch.float32), (0.9, torch.bfloat16)])
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


def test_nothing_is_drawn_where_nothing_is_dropped() -> None:
    before, x = torch.get_rng_state(), torch.ones(5)
    assert dropout(x, 0.0) is x and dropout(x, 0.5, training=False) is x
    assert torch.equal(torch.get_rng_state(), before)


def no_rows() -> Relative:
    """Relative rows that are zero: the plain result, by the functions of relative attention."""
    encoding = Relative(dims(), 2)
    for table in encoding.parameters():
        nn.init.zeros_(table)
    return encoding


@pytest.mark.parametrize("entries", [[], [no_rows()]], ids=["plain", "relative"])
def test_outputs_and_gradients_are_those_of_torch(entries: list[Encoding]) -> None:
    torch.manual_seed(0)
    nmt_attention = Attention(8, 2, 0.0)
    torch_attention = nn.MultiheadAttention(8, 2, batch_first=True)
    projections = (nmt_attention.query, nmt_attention.key, nmt_attention.value)
    linears = [w for w in projections if isinstance(w, nn.Linear)]
    with torch.no_grad():
        torch_attention.in_proj_weight.copy_(torch.cat([linear.weight for linear in linears]))
        torch_attention.in_proj_bias.copy_(torch.cat([linear.bias for linear in linears]))
        torch_attention.out_proj.load_state_dict(nmt_attention.out.state_dict())
    x, g = torch.randn(2, 5, 8, requires_grad=True), torch.randn(2, 5, 8)

    records: list[AttentionRecord] = []
    with watching(nmt_attention, records.append):
        o = nmt_attention(x, x, 0, (SiteEncodings(entries), pass_over(5)))
    wanted, weights = torch_attention(x, x, x, average_attn_weights=False)
    same(o, wanted)
    same(records[0].probabilities, weights)

    inputs = [*(w.weight for w in linears), nmt_attention.out.weight, x]
    torch_inputs = [torch_attention.in_proj_weight, torch_attention.out_proj.weight, x]
    q, k, v, *rest = torch.autograd.grad(o, inputs, g)
    packed, *torch_rest = torch.autograd.grad(wanted, torch_inputs, g)
    for a, b in zip([torch.cat([q, k, v]), *rest], [packed, *torch_rest], strict=True):
        same(a, b)


def same(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["absolute", "t5", "rotary"])
def test_the_fused_kernel_computes_the_same(
    option: str, tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source, target = tiny(f"encoding={option}"), ids(3, 9), ids(3, 7, seed=1)
    source[0, 5:] = 0
    monkeypatch.setattr(layers, "FUSED_FROM", 1)
    fused = model(source, target)
    monkeypatch.setattr(layers, "FUSED_FROM", 1000)
    torch.testing.assert_close(fused, model(source, target))
