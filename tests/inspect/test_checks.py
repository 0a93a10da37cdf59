"""What is tried on small models."""

import pytest

from nmt.encodings.context import Context
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Scaled
from nmt.inspect import checks
from nmt.inspect.card import card
from nmt.inspect.specimen import small
from tests.composing import settings_of


def test_a_shifted_index_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding whose positions start at 0 at every step is what the live check is for."""
    right = Absolute.embed

    def wrong(self: Absolute, x: object, context: Context) -> object:
        context.queries = context.queries - context.queries[:, :1]
        return right(self, x, context)  # type: ignore[arg-type]

    assert checks.cached(small(settings_of("encoding=absolute")).model).passed
    monkeypatch.setattr(Absolute, "embed", wrong)
    broken = checks.cached(small(settings_of("encoding=absolute")).model)
    assert not broken.passed and "largest difference" in broken.finding
    assert "cached decoding     WRONG" in card("absolute", settings_of("encoding=absolute"))


def test_shift_and_order_are_tried() -> None:
    absolute, rotary, none = (
        small(settings_of(f"encoding={o}")) for o in ("absolute", "rotary", "none")
    )
    shifted = [checks.shift(s) for s in (absolute, rotary, none)]
    assert [s is not None and s.holds for s in shifted] == [False, True, True]
    assert [checks.permutation(s).holds for s in (absolute, rotary, none)] == [False, False, True]
    assert all(type(e.positions) is not Scaled for e in rotary.model.entries)  # undone


def test_interpolation_and_limits() -> None:
    assert checks.interpolation(small(settings_of("encoding=rotary"))).holds
    refused = checks.interpolation(small(settings_of("encoding=relative")))
    assert refused == (False, "it knows whole positions only")
    refused = checks.interpolation(small(settings_of("encoding=lstm")))
    assert refused == (False, "no encoding reads positions")
    assert checks.longer_source(small(settings_of("encoding=learned")), 1024).startswith("refused")
    assert (
        checks.longer_source(small(settings_of("encoding=rotary")), None)
        == "1,000 tokens encode to finite states"
    )
