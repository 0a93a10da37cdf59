"""Settings of an option of encoding=, with what it needs besides."""

from nmt.config import Settings
from tests import composing

MORE = {"complex_order": ["model.feedforward=complex"]}


def settings_of(option: str, *overrides: str) -> Settings:
    return composing.settings_of(f"encoding={option}", *MORE.get(option, []), *overrides)
