"""Every option of encoding=, and its settings."""

from nmt.config import Settings
from nmt.overrides.compose import experiment_of
from nmt.overrides.options import options_of

OPTIONS = options_of("encoding")
MORE = {"complex_order": ["model.feedforward=complex"]}


def settings_of(option: str, *overrides: str) -> Settings:
    return experiment_of([f"encoding={option}", *MORE.get(option, []), *overrides]).settings
