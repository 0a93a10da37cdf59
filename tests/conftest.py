"""What many tests need: one thread, and tiny models with any encoding."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor

from nmt import build
from nmt.config import Settings
from nmt.model import example
from nmt.model.transformer import Transformer
from nmt.overrides.compose import experiment_of

hypothesis.settings.register_profile("nmt", deadline=None)  # other work may slow a machine down
hypothesis.settings.load_profile("nmt")

TINY = (
    "model.dim=16",
    "model.feedforward_dim=24",
    "model.heads=2",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Sums of several threads differ in their last bits."""
    torch.set_num_threads(1)


@pytest.fixture
def settings_of() -> Callable[..., Settings]:
    """Settings of a tiny model, from words of a command line."""

    def make(*words: str) -> Settings:
        return deepcopy(composed(*TINY, *words))

    return make


@cache
def composed(*words: str) -> Settings:
    """Composing takes longer than most tests, and many ask for the same."""
    return experiment_of(list(words)).settings


@pytest.fixture
def tiny(settings_of: Callable[..., Settings]) -> Callable[..., Transformer]:
    """A tiny model in eval mode, from words; every parameter away from zero."""

    def make(*words: str, seed: int = 0, vocab: int = 30) -> Transformer:
        torch.manual_seed(seed)
        model = build.transformer(settings_of(*words), vocab, vocab)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.1)
        return model.eval()

    return make


@pytest.fixture
def ids() -> Callable[..., Tensor]:
    """Random token ids [rows, length] above the special ones."""

    def make(rows: int, length: int, seed: int = 0, vocab: int = 30) -> Tensor:
        return example.ids(rows, length, vocab, seed)

    return make


BODY = 44_140_544  # 6+6 layers, dim 512, ff 2048, biases, 3 norms a decoder layer, final norms


@pytest.fixture
def added_at_base() -> Callable[..., int]:
    """How many parameters an encoding adds to a model of base size, from words."""

    def count(*words: str, vocab: int = 8) -> int:
        size = ["model.dim=512", "model.heads=8", "model.feedforward_dim=2048"]
        size += ["model.encoder_layers=6", "model.decoder_layers=6"]
        settings = composed(*size, *words)
        with torch.device("meta"):
            model = build.transformer(settings, vocab, vocab)
        return sum(p.numel() for p in model.parameters()) - 3 * vocab * 512 - vocab - BODY

    return count


def close(a: Any, b: Any, atol: float = 1e-5) -> bool:
    """Whether two tensors agree everywhere."""
    return bool(torch.allclose(a, b, rtol=0, atol=atol))
