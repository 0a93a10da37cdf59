"""A model by kernels beside itself by formulas, in Triton's interpreter."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="triton is not installed; it comes with torch for GPUs")
if torch.cuda.is_available():  # where exact float32, which these tests need, compiles for minutes
    pytest.skip("on a GPU: python -m scripts.kernels compare", allow_module_level=True)

from nmt.encodings.context import Extent
from nmt.kernels import choice, relative
from nmt.model.attention import Attention
from nmt.model.transformer import Transformer
from nmt.model.watch import watching
from scripts.kernels import where
from tests.encodings.attending import pass_over

DEVICE = where.device()
WIDE = ("model.dim=32", "encoding.relative.tau=3")
Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Kernels serve here, too; whether each call was causal."""
    calls: list[bool] = []
    plain = relative.attention

    def attention(*given: object, causal: bool, **more: object) -> Tensor:
        calls.append(causal)
        return plain(*given, causal=causal, **more)  # type: ignore[arg-type]

    for kernel in (choice.LOSS, choice.RELATIVE):
        monkeypatch.setitem(choice.verified, kernel, (DEVICE.type, torch.float32))
    monkeypatch.setattr(relative, "attention", attention)
    return calls


def learnt(model: Transformer, ids: Ids, recompute: bool = False) -> list[Tensor]:
    """The states and gradients of one padded batch, with dropout where the model trains."""
    model.encoder.recompute = model.decoder.recompute = recompute
    model.zero_grad()
    source, target = ids(3, 9).to(DEVICE), ids(3, 7, seed=1).to(DEVICE)
    source[0, 5:] = target[1, 4:] = 0
    torch.manual_seed(4)
    states = model.hidden(source, target).states
    states.square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [states.detach(), *gradients]


def test_attention_asks_for_the_kernel_and_gets_what_formulas_give(
    asked: list[bool], tiny: Make
) -> None:
    encodings = tiny("encoding=relative", *WIDE).decoder_encodings.to(DEVICE)
    torch.manual_seed(0)
    layer, x = Attention(32, 2, 0.0).to(DEVICE).eval(), torch.randn(2, 20, 32, device=DEVICE)
    context = pass_over(20, "decoder")
    at = context.queries.to(DEVICE)
    context = replace(
        context, queries=at, keys=at, new_keys=at, extent=Extent(20, 20), causal=True,
        allowed=torch.ones(20, 20, device=DEVICE).tril().bool()[None, None],
    )  # fmt: skip
    by_kernel = layer(x, x, 1, encodings, context)
    assert asked == [True]
    plain = layer(x, x, 1, encodings, replace(context, extent=None, _memo={}))
    assert len(asked) == 1
    torch.testing.assert_close(by_kernel, plain)


@pytest.mark.slow
@pytest.mark.parametrize("option", [
    "relative", "[absolute,relative]", "[rotary,relative_value]", "[relative_key,lstm]",
    "relative_per_head", "relative_sinusoidal",
])  # fmt: skip
def test_a_model_learns_the_same_by_kernels(
    option: str, asked: list[bool], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(f"encoding={option}", "model.dim=32", "tau=3").to(DEVICE)
    by_kernel = learnt(model, ids)
    assert sorted(set(asked)) == [False, True] and len(asked) == 4  # two layers a stack
    choice.verified.clear()
    for mine, plain in zip(by_kernel, learnt(model, ids), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-6)
    assert len(asked) == 4


@pytest.mark.slow
def test_layers_that_are_computed_again_drop_the_same(
    asked: list[bool], tiny: Make, ids: Ids
) -> None:
    model = tiny("encoding=relative", *WIDE).to(DEVICE).train()
    for module in model.modules():
        if isinstance(module, Attention):
            module.dropout = 0.4
    once, again = learnt(model, ids), learnt(model, ids, recompute=True)
    assert len(asked) == 4 + 8
    for first, second in zip(once, again, strict=True):
        assert torch.equal(first, second)


@pytest.mark.slow
def test_who_watches_and_who_adds_a_bias_gets_the_formulas(
    asked: list[bool], tiny: Make, ids: Ids
) -> None:
    model = tiny("encoding=relative", *WIDE).to(DEVICE)
    source, target = ids(2, 6).to(DEVICE), ids(2, 5, seed=1).to(DEVICE)
    seen: list[object] = []
    with watching(model, seen.append):
        model(source, target)
    assert seen and not asked
    tiny("encoding=[relative,alibi]", *WIDE).to(DEVICE)(source, target)
    assert not asked
    model(source, target)
    assert asked
