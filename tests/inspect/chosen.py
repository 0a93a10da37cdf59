"""Every option of encoding=, and its settings."""

from functools import cache

from nmt.config import Settings
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import options_of

OPTIONS = options_of("encoding")
MORE = {"complex_order": ["model.feedforward=complex"]}


@cache  # composing takes longer than most tests
def settings_of(option: str, *overrides: str) -> Settings:
    return experiment_of([f"encoding={option}", *MORE.get(option, []), *overrides]).settings
