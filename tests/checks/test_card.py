"""The cards, all from the code, and the families of encodings."""

import pytest

from nmt.build import shrink
from nmt.checks.card import card
from nmt.checks.example import build_perturbed
from nmt.config.catalog import FAMILIES, entries_of, family_of
from tests.composing import BY_COLUMNS, every_encoding, settings_of


@pytest.mark.parametrize("option", every_encoding(fast=("absolute", "complex_order")))
def test_every_option_has_a_card(option: str) -> None:
    shown = card(option, settings_of(f"encoding={option}"))
    assert shown.startswith(option) and "parameters" in shown
    assert "cached decoding     exact" in shown
    rows = ("family", "parameters", "longest source", "interpolation", "order in encoder")
    assert all(f"\n  {row} " in shown for row in rows)
    assert max(len(line) for line in shown.split("\n  keys")[0].split("\n")) <= 140


@pytest.mark.parametrize("option, key", [("learned", "size=16"), ("per_language", "column=domain")])
def test_tables_may_be_short_and_columns_have_other_names(option: str, key: str) -> None:
    shown = card(option, settings_of(f"encoding={option}", f"encoding.{option}.{key}"))
    assert "cached decoding     exact" in shown
    assert ("longest source      16\n" in shown) == (option == "learned")


SEVERAL = FAMILIES[-1]
DISTANCES = {  # families of what a common shift of positions leaves as it is
    *("distances, as vectors", "distances, as a bias or a factor", "softmax, gates and coverage"),
    *("distances, from changed queries and keys", "order by recurrence or convolution"),
}
AT_INPUT = {"absolute positions, at the input", "order by recurrence or convolution"}


@pytest.mark.parametrize("option", every_encoding())
def test_the_family_agrees_with_the_hooks(option: str) -> None:
    """What the file of an option states is what the objects do."""
    family, model = family_of(option), build_perturbed(shrink(settings_of(f"encoding={option}")))
    named = [e for e in model.entries if e.name == option] or list(model.entries)
    hooks = {hook for e in named for hook in e.hooks}
    assert family in FAMILIES
    assert (family == BY_COLUMNS) == bool(model.columns)
    if family == SEVERAL:
        assert len({family_of(entry) for entry in entries_of(option)}) > 1
    elif family != BY_COLUMNS and hooks:
        relative = any(e.relative or type(e).relative for e in named)
        assert relative == (family in DISTANCES)
        assert bool(hooks & {"embed", "layer_input"}) == (family in AT_INPUT)
