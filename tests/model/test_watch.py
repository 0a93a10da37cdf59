"""Watching changes nothing, sees every layer, and sees what attention computes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.checks import example
from nmt.encodings.context import causal
from nmt.model import layers
from nmt.model.layers import AttentionRecord, watching
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
ORDER = ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")

MODELS = [
    ["encoding=[complex_order,relative]"],
    ["encoding=universal", "model.share_layers=true"],
    ["encoding=stick_breaking", "model.norm=post"],
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


@pytest.mark.parametrize("words", MODELS, ids=" ".join)
def test_every_model_is_seen_and_says_the_same(
    words: list[str], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_token_by_token_one_sees_the_same(tiny: Make, ids: Ids) -> None:
    model = tiny("encoding=[lstm,relative]")
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


def test_an_error_while_watching_ends_it(tiny: Make, ids: Ids) -> None:
    model = tiny("encoding=absolute")
    with pytest.raises(ZeroDivisionError), watching(model, lambda look: None):
        raise ZeroDivisionError
    assert len(seen(model, *pair(ids))) == len(ORDER)


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
