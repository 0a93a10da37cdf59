"""Layers that are computed a second time give the same bits, and memory is really saved."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.profiler import profile

from nmt.checks import example
from nmt.model import layers
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

MODELS = [  # each encoding is tried by `check_recomputation`
    ["encoding=[sine_spe_stochastic,fire]", "model.norm=post", "model.share_layers=true"],
    ["encoding=[complex_order,alibi]", "+encoding.alibi.at=sample"],
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


def peak(model: Transformer, recompute: bool, ids: Ids) -> int:
    """The most bytes that tensors take at once in a step, beyond those that were there before."""
    with profile(profile_memory=True) as profiled:
        learn(model, recompute, "float32", ids)
    found: Any = profiled.profiler
    events = [e for e in found.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return max(accumulate(changes))


def test_six_layers_take_less_than_half_the_memory(tiny: Make, ids: Ids) -> None:
    six = ("model.encoder_layers=6", "model.decoder_layers=6")
    model = noisy(tiny("encoding=absolute", *six))
    longer: Ids = lambda rows, length, seed=0: ids(rows * 4, length * 6, seed)  # noqa: E731
    assert 0 < 2 * peak(model, True, longer) < peak(model, False, longer)
