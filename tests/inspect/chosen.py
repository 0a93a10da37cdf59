"""Every option of encoding=, and its settings."""

from nmt.config import Settings
from nmt.overrides.options import options_of
from tests import composing

OPTIONS = options_of("encoding")
MORE = {"complex_order": ["model.feedforward=complex"]}


def settings_of(option: str, *overrides: str) -> Settings:
    return composing.settings_of(f"encoding={option}", *MORE.get(option, []), *overrides)
