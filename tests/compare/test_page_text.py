"""How the page writes numbers."""

import pytest

from nmt.compare.page.text import DASH, chance, duration, fixed, share, signed, tick_label


@pytest.mark.parametrize(
    ("value", "written"),
    [(1.25, "+1.2"), (-1.26, "\u22121.3"), (0.0, "±0.0"), (0.04, "±0.0"), (-0.04, "±0.0")],
)
def test_a_difference_that_is_shown_as_zero_has_no_sign(value: float, written: str) -> None:
    assert signed(value) == written


def test_shares_are_percent_and_absent_values_a_dash() -> None:
    assert [share(0.123), share(1.0), share(None)] == ["12.3 %", "100.0 %", DASH]
    assert [fixed(-2.345, 2), fixed(None)] == ["\u22122.35", DASH]


def test_small_probabilities_and_large_numbers_are_short() -> None:
    assert [chance(0.0004), chance(0.04), chance(None)] == ["p < 0.001", "p = 0.040", "not tested"]
    assert [tick_label(1500), tick_label(2e6), tick_label(-3)] == ["1.5k", "2M", "\u22123"]
    assert [duration(89), duration(90), duration(5400)] == ["89 s", "2 min", "1.5 h"]
