"""The families of encodings, and what their objects do."""

from pathlib import Path

import pytest

from nmt.build import shrunken
from nmt.checks.example import perturbed
from nmt.config.catalog import FAMILIES, UNSTATED, entries_of, family_of, list_encodings
from tests.composing import BY_COLUMNS, every_encoding, settings_of

SEVERAL = FAMILIES[-1]
DISTANCES = {  # families of what a common shift of positions leaves as it is
    *("distances, as vectors", "distances, as a bias or a factor", "softmax, gates and coverage"),
    *("distances, from changed queries and keys", "order by recurrence or convolution"),
}
AT_INPUT = {"absolute positions, at the input", "order by recurrence or convolution"}


@pytest.mark.parametrize("option", every_encoding())
def test_the_family_agrees_with_the_hooks(option: str) -> None:
    """What the file of an option states is what the objects do."""
    family, model = family_of(option), perturbed(shrunken(settings_of(f"encoding={option}")))
    named = [e for e in model.entries if e.name == option] or list(model.entries)
    hooks = {hook for e in named for hook in e.hooks}
    assert family in FAMILIES
    assert (family == BY_COLUMNS) == bool(model.columns)
    if family == SEVERAL:
        assert len({family_of(entry) for entry in entries_of(option)}) > 1
    elif family != BY_COLUMNS and hooks:
        relative = any(e.relative or type(e).relative for e in named)
        assert relative == (family in DISTANCES)
        assert bool(hooks & {"embed", "layer"}) == (family in AT_INPUT)


def test_families_of_options_that_share_a_class() -> None:
    for name in ("scalar", "diet"):
        assert family_of(f"{name}_absolute") == "absolute positions, in attention"
        assert family_of(f"{name}_relative") == "distances, as a bias or a factor"


def test_a_family_of_ones_own_comes_last_and_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "encoding").mkdir()
    for name, line in {
        "a": "# family: dreams \n",
        "b": "",
        "c": "# family: no positions\n",
    }.items():
        text = f"# @package _global_\n# What it does\n{line}encoding: {{}}\n"
        (tmp_path / "encoding" / f"{name}.yaml").write_text(text, encoding="utf-8")
    listed = list_encodings((tmp_path,))
    assert list(dict.fromkeys(facts.family for facts in listed)) == [*FAMILIES, "dreams", UNSTATED]
    assert [facts.name for facts in listed[:2]] == ["c", "none"]
    assert [facts.name for facts in listed[-2:]] == ["a", "b"]
