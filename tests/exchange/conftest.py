"""Proofs on few and short samples."""

import pytest

from nmt.exchange import ctranslate2_write, proof
from nmt.modeldir import Trained


@pytest.fixture(autouse=True)
def few_samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and tables as a module's FEW says."""
    for name, value in getattr(request.module, "FEW", {}).items():
        monkeypatch.setattr(ctranslate2_write if name == "LONGEST" else proof, name, value)


@pytest.fixture(scope="session")
def model() -> Trained:
    """A model whose outputs differ, and end; see `copying`."""
    from tests.exchange.test_ctranslate2_engine import copying

    return copying()
