"""Layers that are computed a second time give the same bits, and memory is really saved."""

import gc
import weakref
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from nmt.checks import example
from nmt.encodings.context import Context
from nmt.encodings.passes import copy_pass, with_positions
from nmt.encodings.positions import Index
from nmt.encodings.site import Encodings
from nmt.model import layers
from nmt.model.layers import Site, compute_twice
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

MODELS = [
    ["encoding=[sine_spe_stochastic,fire]", "model.norm=post", "model.share_layers=true"],
    ["encoding=diet_relative"],
    ["encoding=universal", "model.share_layers=true"],
    ["encoding=[complex_order,alibi]", "+encoding.alibi.at=sample"],
    ["encoding=lrpe", "model.drop_residual=[2]"],
    *(["encoding=rotary", f"+encoding.rotary.at={at}"] for at in ("augment", "sample")),
    ["encoding=relative", "+encoding.relative.at=shift", "model.decoder_layers=3"],
]


class Learned(NamedTuple):
    """What a step leaves behind."""

    loss: Tensor
    gradients: dict[str, Tensor]
    random: Tensor  # the state of the generator
    calls: int  # of layers


def noisy(model: Transformer) -> Transformer:
    """The model in training, with much dropout everywhere."""
    for module in model.modules():
        if hasattr(module, "dropout"):
            setattr(module, "dropout", 0.3)  # noqa: B010  # no tensor, as nn.Module expects
    return model.train()


def learn(model: Transformer, recompute: bool, kind: str, ids: Ids) -> Learned:
    """One batch, padded, with layers that are computed once, or twice."""
    model.encoder.recompute = model.decoder.recompute = recompute
    model.zero_grad()
    source, target = ids(3, 9), ids(3, 7, seed=1)
    source[0, 5:] = target[1, 4:] = 0
    columns = example.columns(model.entries, source)
    layers = [*model.encoder.layers, *model.decoder.layers]
    calls: list[int] = []
    hooks = [f.register_forward_pre_hook(lambda *_: calls.append(1)) for f in layers]
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == "bfloat16"):
        loss = model(source, target, columns).float().square().mean()
    loss.backward()
    for hook in hooks:
        hook.remove()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return Learned(loss.detach(), gradients, torch.random.get_rng_state(), len(calls))


def check(model: Transformer, ids: Ids, *kinds: str) -> None:
    for kind in kinds or ("float32", "bfloat16"):
        kept, again = (learn(model, recompute, kind, ids) for recompute in (False, True))
        assert again.calls == 2 * kept.calls
        assert torch.equal(kept.loss, again.loss)
        assert torch.equal(kept.random, again.random)
        assert kept.gradients.keys() == again.gradients.keys()
        for name, gradient in kept.gradients.items():
            assert gradient.isfinite().all() and torch.equal(gradient, again.gradients[name]), name


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_losses_and_gradients_are_the_same_bits(words: list[str], tiny: Make, ids: Ids) -> None:
    check(noisy(tiny(*words)), ids)


def test_the_fused_kernel_draws_the_same_again(
    tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "FUSED_FROM", 1)
    check(noisy(tiny("encoding=t5")), ids)


def test_nothing_is_computed_twice_where_nothing_is_learnt(
    tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in evaluation, not without gradients, not while decoding: caches would grow twice."""
    model = tiny()
    model.encoder.recompute = model.decoder.recompute = True
    source, target = ids(2, 6), ids(2, 5, seed=1)
    calls: list[int] = []

    def spy(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return checkpoint(*arguments, **options)

    monkeypatch.setattr(layers, "checkpoint", spy)
    model(source, target)
    with torch.no_grad():
        model.train()(source, target)
    assert not calls
    state = model.start(source)
    assert len(calls) == 2  # the layers of the encoder learn
    for t in range(5):
        model.step(target[:, t], state)
    assert len(calls) == 2 and state.self_caches[0].length == 5


def peak(model: Transformer, recompute: bool, ids: Ids) -> int:
    """The most bytes that tensors take at once in a step, beyond those that were there before."""
    with profile(profile_memory=True) as profiled:
        learn(model, recompute, "float32", ids)
    found: Any = profiled.profiler
    events = [e for e in found.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return max(accumulate(changes))


@pytest.mark.parametrize("option", ["absolute", "diet_relative"])
@pytest.mark.slow
def test_six_layers_take_less_than_half_the_memory(option: str, tiny: Make, ids: Ids) -> None:
    six = ("model.encoder_layers=6", "model.decoder_layers=6")
    model = noisy(tiny(f"encoding={option}", *six))
    longer: Ids = lambda rows, length, seed=0: ids(rows * 4, length * 6, seed)  # noqa: E731
    assert 0 < 2 * peak(model, True, longer) < peak(model, False, longer)


def test_a_pass_without_a_backward_one_frees_what_it_made() -> None:
    """What a layer made for the others is held by the graph, which must not hold itself."""
    weight = torch.ones(3, requires_grad=True)
    at = torch.arange(3)[None]
    context = Context("encoder", at, at, at, training=True)
    made: list[weakref.ref[Tensor]] = []

    def make() -> Tensor:
        made.append(weakref.ref(result := (weight * 2).exp()))
        return result

    class Layer(nn.Module):
        def forward(self, x: Tensor, number: int, sites: Sequence[Site]) -> Tensor:
            own = with_positions(sites[0][1], Index())
            return x * own.once(("each", number), make) * own.once("all", make)

    def forward(context: Context) -> Tensor:
        x, layer = torch.ones(3), Layer()
        for number in range(3):
            x = compute_twice(layer, x, number, [(Encodings([]), context)])
        return x

    y = forward(copy_pass(context))
    alive = [each() is not None for each in made]  # what one layer made alone is not kept
    assert alive == [True, True, True, False]  # of the first (two), the second and the third layer
    y.sum().backward()
    assert len(made) == 8 and weight.grad is not None
    y = forward(copy_pass(context))
    del y
    gc.collect()
    assert len(made) == 12 and all(each() is None for each in made)
