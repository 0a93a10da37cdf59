"""Fewer bits: nearly the same translations, and a clear word where a device has no such numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.decode.beam import search
from nmt.decode.quantised import Int8, quantised
from nmt.decode.translator import Translation, Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from tests.decode.copying import decode, trained

Make = Callable[..., Transformer]
LINES = ["w1 w2 w3 w4 w5", "w6", "w7 w8 w9 w10 w11 w12 w13 w14", "w15 w16"]


def translations(model: Transformer, **changes: Any) -> list[Translation]:
    """Of LINES, the best of each; every piece is long in coming to an end."""
    whole = trained()._replace(model=model)
    options = decode(beam_size=3, max_length_ratio=0.0, max_length_offset=6, **changes)
    return [found[0] for found in Translator(whole, options).translate(LINES)]


def sharp(tiny: Make, *words: str) -> Transformer:
    """A model that is sure of what it says, as one is after training."""
    model = tiny(*words, "model.dim=32", "model.feedforward_dim=64", vocab=47)
    with torch.no_grad():
        model.output.weight.mul_(4)
    return model


@pytest.mark.parametrize("encoding", ["absolute", "relative", "rotary", "lstm", "cope"])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_scores_are_nearly_those_of_float32(precision: str, encoding: str, tiny: Make) -> None:
    model = sharp(tiny, f"encoding={encoding}")
    whole, fewer = translations(model), translations(model, precision=precision)
    for a, b in zip(whole, fewer, strict=True):
        assert a.score != b.score  # it does something
        assert b.score == pytest.approx(a.score, abs=0.15 * max(1, abs(a.score)))
    assert whole == translations(model)  # and leaves the model as it was


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_sentence_does_not_feel_its_neighbours(precision: str, tiny: Make) -> None:
    model = sharp(tiny, "encoding=relative")
    together = translations(model, precision=precision)
    alone = translations(model, precision=precision, batch_tokens=1)
    assert [t.text for t in together] == [t.text for t in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_a_layer_in_8_bits_is_as_near_as_rounding_allows() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(5, 3, 64) * torch.logspace(-3, 3, 5)[:, None, None]
    x[1, 1] = 0
    said, should = Int8(linear)(x), linear(x)
    assert said.shape == should.shape
    weight, scale = linear.weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / 127
    off = x.abs().sum(-1, keepdim=True) * weight / 2  # half a unit of each weight
    off = off + scale / 2 * (linear.weight.abs().sum(1) + 64 * weight / 2)  # and of each input
    assert ((said - should).abs() <= off + 1e-5 * should.abs() + 1e-6).all()
    assert (said - should).abs().max() > 0
    assert torch.equal(Int8(linear)(x[3:4, :1]), said[3:4, :1])  # rows keep apart
    assert Int8(linear)(x[:0]).shape == (0, 3, 48)


def test_only_large_matrices_are_rounded_and_the_rest_is_shared(tiny: Make) -> None:
    model = tiny("encoding=relative", "model.tie=target", "model.length_head=true")
    found = quantised(model)
    kept = {id(p) for p in model.parameters()}
    assert all(id(p) in kept for p in found.parameters())
    assert found.target_embedding.weight is model.target_embedding.weight
    assert isinstance(found.output, Int8) and isinstance(model.output, nn.Linear)
    layers = sum(isinstance(module, Int8) for module in found.modules())
    assert layers == 2 * (4 + 2) + 2 * (8 + 2) + 1


def test_other_devices_refuse_8_bits(tiny: Make) -> None:
    model = tiny("encoding=none").to("meta")
    with pytest.raises(UserError, match=r"^decode\.precision=int8: for CPUs only, not for meta; "):
        quantised(model)


def test_a_cpu_without_the_instructions_refuses_8_bits(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": False})
    with pytest.raises(UserError, match=r"^decode\.precision=int8: this CPU or this torch has no "):
        quantised(tiny("encoding=none"))


def test_the_step_gives_float32_to_the_search(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over a vocabulary would be coarse in 8 bits of a bfloat16."""
    seen: list[torch.dtype] = []

    def spy(step: Callable[..., Tensor], *a: Any, **k: Any) -> Any:
        def watched(*b: Any) -> Tensor:
            said = step(*b)
            seen.append(said.dtype)
            return said

        return search(watched, *a, **k)

    monkeypatch.setattr("nmt.decode.translator.search", spy)
    translations(sharp(tiny, "encoding=none"), precision="bfloat16")
    assert set(seen) == {torch.float32}
