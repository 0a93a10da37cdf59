"""The cards, all from the code."""

import pytest

from nmt import build
from nmt.checks.card import card, interpolation
from nmt.checks.example import perturbed
from tests.composing import every_encoding, settings_of


@pytest.mark.parametrize("option", every_encoding())
def test_every_option_has_a_card(option: str) -> None:
    shown = card(option, settings_of(f"encoding={option}"))
    assert shown.startswith(option) and "parameters" in shown
    assert "cached decoding     exact" in shown
    rows = ("family", "parameters", "longest source", "interpolation", "order in encoder")
    assert all(f"\n  {row} " in shown for row in rows)
    assert max(len(line) for line in shown.split("\n  keys")[0].split("\n")) <= 140


@pytest.mark.parametrize("size", [16, 22])
def test_a_table_may_be_small(size: int) -> None:
    shown = card("learned", settings_of("encoding=learned", f"encoding.learned.size={size}"))
    assert f"longest source      {size}\n" in shown
    assert "cached decoding     exact" in shown


@pytest.mark.parametrize("changed", ["column=domain", "languages=1"])
def test_columns_are_made_as_the_encoding_reads_them(changed: str) -> None:
    """One integer for each sentence, whatever the name, and none without a table."""
    shown = card(
        "per_language", settings_of("encoding=per_language", f"encoding.per_language.{changed}")
    )
    assert "cached decoding     exact" in shown


def test_interpolation() -> None:
    for option, said in (
        ("rotary", "yes: positions may be any real numbers"),
        ("relative", "no: it knows whole positions only"),
        ("lstm", "no: no encoding reads positions"),
    ):
        assert interpolation(perturbed(build.shrunken(settings_of(f"encoding={option}")))) == said
