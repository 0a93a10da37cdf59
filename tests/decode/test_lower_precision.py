"""Fewer bits: nearly the same translations, and a clear word where a device has no such numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.decode.models import set_precision
from nmt.decode.search import search
from nmt.decode.sources import Source
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translation, Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.system.products import Int8, Packed
from tests.decode.copying import decode, trained
from tests.fast import fast_first

Make = Callable[..., Transformer]
LINES = ["w1 w2 w3 w4 w5", "w6", "w7 w8 w9 w10 w11 w12 w13 w14", "w15 w16"]


@pytest.fixture(autouse=True)
def lower(pretend: Callable[..., None]) -> None:
    """Formats are used here even where they are slow, which tests of their choice undo."""
    pretend(searches_in_bfloat16=True, int8=True)


def translations(model: Transformer, **changes: Any) -> list[Translation]:
    """Of LINES, the best of each; every piece is long in coming to an end."""
    whole = trained()._replace(model=model)
    options = decode(beam_size=3, max_length_ratio=0.0, max_length_offset=6, **changes)
    return [found[0] for found in Translator.of(whole, options).translate(LINES)]


def sharp(tiny: Make, *words: str) -> Transformer:
    """A model that is sure of what it says, as one is after training."""
    model = tiny(*words, "model.dim=32", "model.feedforward_dim=64", vocab=47)
    with torch.no_grad():
        model.output.weight.mul_(4)
    return model


@pytest.mark.parametrize(
    "encoding", fast_first(3, ["absolute", "relative", "lstm", "rotary", "cope"])
)
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_scores_are_nearly_those_of_float32(precision: str, encoding: str, tiny: Make) -> None:
    model = sharp(tiny, f"encoding={encoding}")
    whole, fewer = translations(model), translations(model, precision=precision)
    for a, b in zip(whole, fewer, strict=True):
        assert a.score != b.score  # it does something
        assert b.score == pytest.approx(a.score, abs=0.15 * max(1, abs(a.score)))
    assert whole == translations(model)  # and leaves the model as it was


@pytest.mark.parametrize(
    "encoding", fast_first(2, ["relative", "lstm", "complex_order", "convolution"])
)
def test_weights_laid_out_beforehand_give_the_same(
    encoding: str, tiny: Make, pretend: Callable[..., None]
) -> None:
    model, found = sharp(tiny, f"encoding={encoding}"), []
    for packs in (True, False):
        pretend(packs=packs)
        engine = TorchEngine([trained()._replace(model=model)], decode())
        assert isinstance(engine.models[0].output, Packed) is packs
        found.append(translations(model))
    for a, b in zip(*found, strict=True):
        assert a.text == b.text and a.score == pytest.approx(b.score, abs=1e-4)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_sentence_does_not_feel_its_neighbours(precision: str, tiny: Make) -> None:
    model = sharp(tiny, "encoding=relative")
    together = translations(model, precision=precision)
    alone = translations(model, precision=precision, batch_tokens=1)
    assert [t.text for t in together] == [t.text for t in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


def test_alignments_are_nearly_those_of_float32(tiny: Make) -> None:
    whole = trained()._replace(model=sharp(tiny, "encoding=relative"))
    full, rounded = (
        Translator.of(whole, decode(precision=precision)).align(["w1 w2 w3"], ["w4 w5"])
        for precision in ("float32", "int8")
    )
    assert not np.array_equal(full[0].attention, rounded[0].attention)
    np.testing.assert_allclose(full[0].attention, rounded[0].attention, atol=0.05)


def test_only_large_matrices_are_rounded_and_the_rest_is_shared(tiny: Make) -> None:
    model = tiny("encoding=relative", "model.tie=target")
    (found,), _ = set_precision([model], "int8")
    kept = {id(p) for p in model.parameters()}
    assert all(id(p) in kept for p in found.parameters())
    assert found.target_embedding.weight is model.target_embedding.weight
    assert isinstance(found.output, Int8) and isinstance(model.output, nn.Linear)
    layers = sum(isinstance(module, Int8) for module in found.modules())
    assert layers == 2 * (4 + 2) + 2 * (8 + 2) + 1


def test_other_devices_refuse_8_bits(tiny: Make) -> None:
    model = tiny("encoding=none").to("meta")
    with pytest.raises(UserError, match=r"^decode\.precision=int8: for CPUs only, not for meta; "):
        set_precision([model], "int8")


@pytest.mark.parametrize(
    "precision, slow", [("int8", {"int8": False}), ("bfloat16", {"searches_in_bfloat16": False})]
)
def test_a_format_that_is_not_faster_gives_way_to_float32(
    precision: str,
    slow: dict[str, Any],
    tiny: Make,
    pretend: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    pretend(**slow)
    model = sharp(tiny, "encoding=none")
    assert translations(model, precision=precision) == translations(model)
    message = f"decode.precision={precision}: not faster than float32 on this CPU: float32 is used"
    assert [m for m in caplog.messages if "precision" in m] == [message]


def test_the_step_gives_float32_to_the_search(tiny: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over a vocabulary would be coarse in 8 bits of a bfloat16."""
    seen: list[torch.dtype] = []

    def spy(step: Callable[..., Tensor], *a: Any, **k: Any) -> Any:
        def watched(*b: Any) -> Tensor:
            said = step(*b)
            seen.append(said.dtype)
            return said

        return search(watched, *a, **k)

    monkeypatch.setattr("nmt.decode.torch_engine.search", spy)
    translations(sharp(tiny, "encoding=none"), precision="bfloat16")
    assert set(seen) == {torch.float32}


class Rounded(TorchDispatchMode):
    """Counts how often parameters change their format."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.sizes = {p.data_ptr(): p.numel() for p in model.parameters() if p.dim() == 2}
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(("aten._to_copy", "aten.to.")):
            self.count += self.sizes.get(args[0].data_ptr()) == args[0].numel()
        return func(*args, **(kwargs or {}))


def test_weights_are_rounded_once_in_a_search(tiny: Make) -> None:
    counts = []
    for limit in (1, 12):
        model = tiny("encoding=none", vocab=47)
        given = trained()._replace(model=model)
        engine = TorchEngine([given], decode(precision="bfloat16", beam_size=1))
        with Rounded(model) as rounded:
            source = Source([5, 6, 1], {}, required=[7] * limit, limit=limit)
            ((found,),) = engine.search([source], 1)
        assert len(found.ids) == limit
        counts.append(rounded.count)
    assert counts[0] == counts[1] > 0
