"""Fewer bits: nearly the same translations, and a clear word where a device has no such numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.decode.models import set_precision
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translation, Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.system.products import Packed
from tests.decode.copying import decode, trained

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


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_scores_are_nearly_those_of_float32(precision: str, tiny: Make) -> None:
    model = sharp(tiny, "encoding=relative")
    whole, fewer = translations(model), translations(model, precision=precision)
    for a, b in zip(whole, fewer, strict=True):
        assert a.score != b.score  # it does something
        assert b.score == pytest.approx(a.score, abs=0.15 * max(1, abs(a.score)))
    assert whole == translations(model)  # and leaves the model as it was


def test_weights_laid_out_beforehand_give_the_same(
    tiny: Make, pretend: Callable[..., None]
) -> None:
    model, found = sharp(tiny, "encoding=complex_order"), []
    for packs in (True, False):
        pretend(packs=packs)
        engine = TorchEngine([trained()._replace(model=model)], decode())
        assert isinstance(engine.models[0].output, Packed) is packs
        found.append(translations(model))
    for a, b in zip(*found, strict=True):
        assert a.text == b.text and a.score == pytest.approx(b.score, abs=1e-4)


def test_a_sentence_does_not_feel_its_neighbours(tiny: Make) -> None:
    model = sharp(tiny, "encoding=relative")
    together = translations(model, precision="int8")
    alone = translations(model, precision="int8", batch_tokens=1)
    assert [t.text for t in together] == [t.text for t in alone]
    for a, b in zip(together, alone, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-4)


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
