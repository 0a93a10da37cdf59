"""Real models of random weights, that read and write the words of `copying`, or letters."""

from collections.abc import Callable

import pytest
import torch

from nmt.config.settings import Settings
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
from nmt.text.bpe import Bpe
from nmt.text.side import Side
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocab import Vocabulary
from tests.decode.copying import trained


@pytest.fixture
def real(
    tiny: Callable[..., Transformer], settings_of: Callable[..., Settings]
) -> Callable[..., Trained]:
    """Overrides -> a model of random weights."""

    def make(*overrides: str, seed: int = 0) -> Trained:
        side = trained().source
        model = tiny(*overrides, seed=seed, vocab=len(side.vocabulary))
        return Trained(settings_of(*overrides), model, side, side, {"longest_source": 30})

    return make


@pytest.fixture
def of_letters(
    tiny: Callable[..., Transformer], settings_of: Callable[..., Settings]
) -> Callable[..., Trained]:
    """Overrides -> a model of letters; the more it is shaken, the surer it is of what it says."""

    def make(
        *overrides: str, letters: str = "abcdefghi", seed: int = 0, shake: float = 0.0
    ) -> Trained:
        side = Side(Bpe(Tokenizer("nfc", "none", "de"), [], [*letters]), Vocabulary([*letters]))
        model = tiny(*overrides, seed=seed, vocab=len(side.vocabulary))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn(p.shape) * shake)
        return Trained(settings_of(*overrides), model, side, side, {"longest_source": 30})

    return make


@pytest.fixture
def whole(real: Callable[..., Trained]) -> Trained:
    """The same with encoding=relative."""
    return real("encoding=relative")
