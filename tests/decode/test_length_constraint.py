"""Who tells a length-aware decoder how long its output is to be, and scaled positions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

import nmt
from nmt.config.settings import with_decode
from nmt.decode.torch_engine import TorchEngine
from nmt.decode.translator import Translator
from nmt.errors import UserError
from nmt.model.layers import Stack
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from tests.decode.copying import decode

LINES = ["a b c d", "h", "a b"]


@pytest.fixture
def trained(of_letters: Callable[..., Trained]) -> Callable[..., Trained]:
    return partial(of_letters, "data=files", "data.root=x")


def lengths_read(trained: Trained, columns: Any = None, **options: Any) -> dict[int, int]:
    """The length that the decoder reads for each source, by its number of tokens, eos included."""
    seen, sources = dict[int, int](), list[int]()

    def look(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, Stack):
            (_, context), *_ = inputs[1]
            if context.site == "encoder":
                sources[:] = context.lengths.tolist()
            elif context.lengths is not None:
                seen.update(zip(sources, context.lengths.tolist(), strict=False))
                sources.clear()

    with register_module_forward_pre_hook(look):
        Translator.of(trained, decode(**options)).texts(LINES, columns)
    return seen


def test_ratio_counts_pieces_and_eos(trained: Callable[..., Trained]) -> None:
    assert lengths_read(trained("encoding=ldpe")) == {5: 5, 2: 2, 3: 3}
    assert lengths_read(trained("encoding=lrpe"), length_ratio=1.5) == {5: 7, 2: 3, 3: 4}
    assert lengths_read(trained("encoding=ldpe"), length_ratio=0.1) == {5: 2, 2: 2, 3: 2}
    assert lengths_read(trained("encoding=absolute")) == {}


def test_given_lengths_stand_in_a_column(trained: Callable[..., Trained]) -> None:
    given = {"length": ["9", "8", "7"]}
    found = lengths_read(trained("encoding=ldpe"), given, target_length="given")
    assert found == {5: 10, 2: 9, 3: 8}
    forced = lengths_read(
        trained("encoding=ldpe"), given, length="forced"
    )  # whatever the ratio would be
    assert forced == {5: 10, 2: 9, 3: 8}
    with pytest.raises(UserError, match="column length"):
        lengths_read(trained("encoding=ldpe"), None, target_length="given")
    with pytest.raises(UserError, match="no encoding of this model asks for a length"):
        lengths_read(trained("encoding=absolute"), given, target_length="given")
    with pytest.raises(UserError, match="column length: unknown to this model"):
        lengths_read(trained("encoding=ldpe"), given)


def test_positions_are_scaled_once_and_by_name(trained: Callable[..., Trained]) -> None:
    rotary = trained("encoding=rotary")
    for _ in range(2):  # a second translator does not scale what is scaled already
        engine = Translator.of(rotary, decode(position_scale=0.5)).engine
        assert isinstance(engine, TorchEngine)
        for model, position in ((engine.models[0], 2.0), (rotary.model, 4.0)):
            numbers = _first(model).positions.assign(torch.tensor([[4]]), None)
            assert numbers.tolist() == [[position]]
    scaled = rotary._replace(settings=with_decode(rotary.settings, {"position_scale": 0.5}))
    scores = [nmt.score(model, LINES, LINES)[0].log_prob for model in (rotary, scaled)]
    assert scores[0] != scores[1]
    with pytest.raises(
        UserError, match=r"position_scale=0\.5: encoding\.relative: .*whole positions"
    ):
        Translator.of(trained("encoding=relative"), decode(position_scale=0.5))
    with pytest.raises(UserError, match=r"position_scale=0\.5: .*no encoding reads positions"):
        Translator.of(trained("encoding=lstm"), decode(position_scale=0.5))


def _first(model: Transformer) -> Any:
    return next(iter(model.encoder_encodings))
