"""The survey's columns and the families, as running an encoding shows them."""

from pathlib import Path

import pytest

from nmt import build
from nmt.config.catalog import FAMILIES, UNSTATED, entries_of, families, family_of
from nmt.inspect.facts import facts_of
from nmt.inspect.parity import perturbed
from nmt.model.transformer import Transformer
from tests.composing import BY_COLUMNS, every_encoding, settings_of

SHOWN = {  # by family, the reference points and injections that running an option may show
    "no positions": ({"-"}, {"-"}),
    "absolute positions, at the input": ({"A"}, {"ape", "-"}),
    "absolute positions, in attention": ({"A", "B"}, {"ape", "mam"}),
    "distances, as vectors": ({"R"}, {"mam"}),
    "distances, as a bias or a factor": ({"R"}, {"mam"}),
    "distances, from changed queries and keys": ({"R"}, {"mam"}),
    "order by recurrence or convolution": ({"R"}, {"-"}),
    "softmax, gates and coverage": ({"R"}, {"mam"}),
}
SEVERAL = FAMILIES[-1]


def small(option: str) -> Transformer:
    return perturbed(build.shrunken(settings_of(f"encoding={option}")))


@pytest.mark.parametrize("option", every_encoding())
def test_the_family_agrees_with_what_runs(option: str) -> None:
    """What the file of an option states is what the objects do."""
    family, model = family_of(option), small(option)
    known = facts_of(model, option)
    assert family in FAMILIES
    assert (family == BY_COLUMNS) == bool(model.columns)
    if family == SEVERAL:
        assert len({family_of(entry) for entry in entries_of(option)}) > 1
    elif family != BY_COLUMNS:
        references, injections = SHOWN[family]
        assert known.reference in references and known.injection in injections


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
    members = families((tmp_path,))
    assert list(members) == [*FAMILIES, "dreams", UNSTATED]
    assert members["dreams"] == ["a"] and members[UNSTATED] == ["b"]
    assert members["no positions"] == ["c", "none"]


@pytest.mark.parametrize(
    "option, expected",
    [
        ("none", "- - False False"),
        ("absolute", "A ape False False"),
        ("learned", "A ape True False"),
        ("relative", "R mam True True"),
        ("relative_absolute", "B both True True"),
        ("rotary", "R mam False True"),
        ("lstm", "R - True False"),
        ("position_infused", "A ape False True"),
        ("complex_order", "A - True True"),
        ("tupe_relative", "B mam True True"),
    ],
)
def test_the_columns_of_the_survey(option: str, expected: str) -> None:
    assert " ".join(map(str, facts_of(small(option)))) == expected
