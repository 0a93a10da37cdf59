"""What moves if positions are shifted, or tokens change places."""

import pytest

from nmt import build
from nmt.checks.example import perturbed
from nmt.checks.properties import reordering, shift
from nmt.encodings.positions import Scaled
from tests.composing import settings_of


@pytest.mark.parametrize(
    ("option", "by_shift", "by_order"),
    [("absolute", True, True), ("rotary", False, True), ("none", False, False)],
)
def test_shift_and_order_are_tried(option: str, by_shift: bool, by_order: bool) -> None:
    model = perturbed(build.shrunken(settings_of(f"encoding={option}")))
    moved = shift(model)
    assert moved is not None and (moved > 1e-5) == by_shift
    assert (reordering(model) > 1e-5) == by_order
    assert all(type(e.positions) is not Scaled for e in model.entries)  # undone
