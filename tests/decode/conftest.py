"""Real models of random weights, that read and write the words of `copying`."""

from collections.abc import Callable

import pytest

from nmt.config.settings import Settings
from nmt.model.transformer import Transformer
from nmt.modeldir import Trained
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
def whole(real: Callable[..., Trained]) -> Trained:
    """The same with encoding=relative."""
    return real("encoding=relative")
