"""What tests compose without Hydra is what Hydra composes."""

import pytest

from nmt.config.compose import experiment_of
from tests.composing import settings_of
from tests.conftest import TINY

STILL = (
    "model.dropout=0.0",
    "model.norm=post",
    "model.drop_residual=[1,2]",
    "model.share_layers=true",
)


@pytest.mark.parametrize(
    "arguments",
    [
        (*TINY, "encoding=relative"),
        (*TINY, *STILL, "encoding=[absolute,relative]"),
        ("encoding=[relative,relative_key]", "tau=3"),
        ("encoding=[rotary,alibi,learned]",),
        ("encoding=universal",),
    ],
    ids=" ".join,
)
def test_settings_are_those_of_hydra(arguments: tuple[str, ...]) -> None:
    settings = experiment_of(list(arguments)).settings
    for _ in range(2):  # nobody's changes stay
        made = settings_of(*arguments)
        assert made == settings and list(made.encoding) == list(settings.encoding)
        made.encoding.clear()
