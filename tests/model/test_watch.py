"""Watching changes nothing, sees every layer, and sees what attention computes."""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nmt.checks import example
from nmt.encodings.context import causal
from nmt.encodings.sinusoids import sinusoids
from nmt.model import layers
from nmt.model.layers import Attention, AttentionRecord, EncoderLayer, watching
from nmt.model.transformer import Transformer
from tests.composing import every_encoding

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
ORDER = ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")

MODELS = [
    ["encoding=[lstm,relative]"],
    ["encoding=universal", "model.share_layers=true"],
    ["encoding=ldpe"],
    ["encoding=relative", "model.norm=post"],
]


def pair(ids: Ids) -> tuple[Tensor, Tensor]:
    """Sentences [3, 9] and prefixes [3, 7], some padded."""
    source, target = ids(3, 9), ids(3, 7, seed=1)
    source[0, 5:] = target[1, 4:] = 0
    return source, target


def seen(model: Transformer, source: Tensor, target: Tensor) -> list[AttentionRecord]:
    looks: list[AttentionRecord] = []
    with torch.inference_mode(), watching(model, looks.append):
        model(source, target, example.columns(model.entries, source))
    return looks


@pytest.mark.parametrize("option", every_encoding())
def test_every_encoding_is_seen(
    option: str, tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    check([f"encoding={option}"], tiny, ids, monkeypatch)


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_every_model_is_seen_and_says_the_same(
    words: list[str], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(words, tiny, ids, monkeypatch)


def check(words: list[str], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "FUSED_FROM", 1)  # unwatched, the kernel serves where it can
    model = tiny(*words)
    source, target = pair(ids)
    columns = example.columns(model.entries, source)
    with torch.inference_mode():
        before = model(source, target, columns)
        looks: list[AttentionRecord] = []
        with watching(model, looks.append):
            watched = model(source, target, columns)
        after = model(source, target, columns)
    assert torch.equal(before, after)
    assert float((before - watched).abs().max()) < 1e-5
    assert [look.site for look in looks] == ORDER
    assert [look.layer for look in looks] == [0, 1, 0, 0, 1, 1]
    masks = {
        "encoder": (source != 0)[:, None, None, :],
        "decoder": causal(7, 7, source.device),
        "cross": (source != 0)[:, None, None, :],
    }
    for look in looks:
        p = look.probabilities
        rows, keys = 3 * model.streams, 7 if look.site == "decoder" else 9
        assert p.shape == (rows, 2, 9 if look.site == "encoder" else 7, keys)
        assert p.dtype == torch.float32
        if not any("normalise" in e.hooks for e in model.sites[look.site]):
            assert float((p.sum(-1) - 1).abs().max()) < 1e-5  # others need not share out all
        assert look.allowed is not None
        mask = masks[look.site]
        if len(mask) > 1:
            mask = mask.repeat_interleave(model.streams, 0)
        assert torch.equal(look.allowed, mask)
        assert float(p.masked_fill(mask, 0).abs().max()) == 0


@torch.inference_mode()
def by_hand(
    module: Attention, x: Tensor, memory: Tensor, allowed: Callable[[int, int, int], bool]
) -> Tensor:
    """Softmax of q . k / sqrt(head_dim) in loops and float64: [batch, heads, query, key]."""
    width = x.shape[2] // module.heads
    query, key = cast(torch.nn.Linear, module.query), cast(torch.nn.Linear, module.key)
    q, k = (
        (t.double() @ m.weight.double().T + m.bias.double()).unflatten(-1, (-1, width))
        for t, m in ((x, query), (memory, key))
    )
    found = torch.zeros(len(x), module.heads, x.shape[1], memory.shape[1], dtype=torch.float64)
    for b, h, i in product(*map(range, found.shape[:3])):
        terms = [
            math.exp(float(q[b, i, h] @ k[b, j, h]) / width**0.5) if allowed(b, i, j) else 0.0
            for j in range(memory.shape[1])
        ]
        found[b, h, i] = torch.tensor(terms, dtype=torch.float64) / sum(terms)
    return found


def test_absolute_by_hand(tiny: Make, ids: Ids) -> None:
    """The first layer from the embeddings; every layer from what its attention was given."""
    model = tiny("encoding=absolute")
    source, target = pair(ids)
    given: list[tuple[Attention, Tensor, Tensor]] = []

    def note(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        given.append((cast(Attention, module), inputs[0], inputs[1]))

    hooks = [m.register_forward_pre_hook(note) for m in model.modules() if isinstance(m, Attention)]
    looks = seen(model, source, target)
    for hook in hooks:
        hook.remove()
    may: dict[str, Callable[[int, int, int], bool]] = {
        "encoder": lambda b, i, j: bool(source[b, j]),
        "decoder": lambda b, i, j: j <= i,
        "cross": lambda b, i, j: bool(source[b, j]),
    }
    for look, (module, x, memory) in zip(looks, given, strict=True):
        p = by_hand(module, x, memory, may[look.site])
        assert float((look.probabilities - p).abs().max()) < 1e-6
    first = cast(EncoderLayer, model.encoder.layers[0])
    with torch.inference_mode():
        x = model.source_embedding(source) * 16**0.5 + sinusoids(torch.arange(9), 16)
        p = by_hand(first.attention, y := first.around_attention.norm(x), y, may["encoder"])
    assert float((looks[0].probabilities - p).abs().max()) < 1e-6


@pytest.mark.parametrize("option", ["absolute", "relative", "cope", "lstm"])
def test_token_by_token_one_sees_the_same(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = pair(ids)
    full = seen(model, source, target)
    looks: list[AttentionRecord] = []
    with torch.inference_mode(), watching(model, looks.append):
        state = model.start(source)
        for t in range(7):
            model.step(target[:, t], state)
    steps = looks[2:]  # after the encoder
    assert len(steps) == 7 * 4
    for number, look in enumerate(steps):
        t, whole = number // 4, full[2 + number % 4]
        assert (look.site, look.layer) == (whole.site, whole.layer)
        p = whole.probabilities[:, :, t : t + 1]
        p = p[..., : t + 1] if look.site == "decoder" else p
        assert look.probabilities.shape == p.shape
        assert float((look.probabilities - p).abs().max()) < 1e-5


def test_the_kernel_is_kept_away_only_while_watching(
    tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch, kernel_calls: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(layers, "FUSED_FROM", 1)
    model = tiny("encoding=absolute")
    source, target = pair(ids)
    seen(model, source, target)
    assert not kernel_calls
    with pytest.raises(ZeroDivisionError), watching(model, lambda look: None):
        raise ZeroDivisionError
    model(source, target)
    assert len(kernel_calls) == 6


def test_one_watches_at_a_time(tiny: Make) -> None:
    model = tiny()
    with watching(model, lambda look: None):
        again = watching(model, lambda look: None)
        with pytest.raises(RuntimeError, match="being watched already"):
            again.__enter__()
        watched = [m for m in model.modules() if isinstance(m, Attention)]
        assert all(m.watcher is not None for m in watched)
    assert all(m.watcher is None for m in watched)


def test_dropout_and_gradients_are_those_of_training(tiny: Make, ids: Ids) -> None:
    model = tiny("model.attention_dropout=0.5").train()
    source, target = pair(ids)
    looks: list[AttentionRecord] = []
    torch.manual_seed(3)
    plain = model(source, target).square().sum()
    with watching(model, looks.append):
        torch.manual_seed(3)
        watched = model(source, target).square().sum()
    assert torch.equal(plain, watched)
    gradients = [torch.autograd.grad(t, list(model.parameters())) for t in (plain, watched)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert all(
        float((look.probabilities.detach().sum(-1) - 1).abs().max()) < 1e-5 for look in looks
    )


def test_layers_are_not_seen_twice_in_training(tiny: Make, ids: Ids) -> None:
    model = tiny("encoding=relative").train()
    model.encoder.recompute = model.decoder.recompute = True
    looks: list[AttentionRecord] = []
    with watching(model, looks.append):
        inside = model(*pair(ids)).square().sum()
        inside.backward()
        outside = model(*pair(ids)).square().sum()
    outside.backward()  # after the watcher has gone
    assert [look.site for look in looks] == 2 * ORDER
    assert model.encoder.recompute and model.decoder.recompute
