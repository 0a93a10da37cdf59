"""A proof on few lines, for test modules that import the fixture."""

import pytest

from nmt.exchange import samples


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few samples of up to 40 pieces."""
    monkeypatch.setattr(samples, "MADE_UP", 4)
    monkeypatch.setattr(samples, "BEYOND", 40)
    monkeypatch.setattr(samples, "LONG", 2)
