"""Proofs on few and short samples."""

import pytest

from nmt.exchange import ctranslate2_write, samples


@pytest.fixture(autouse=True)
def few_samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and tables as a module's FEW says; with SLOW_IN_FULL its slow tests have all."""
    in_full = (
        getattr(request.module, "SLOW_IN_FULL", False)
        and request.node.get_closest_marker("slow") is not None
    )
    for name, value in ({} if in_full else getattr(request.module, "FEW", {})).items():
        monkeypatch.setattr(ctranslate2_write if name == "LONGEST" else samples, name, value)
