"""What holds for whatever stands in conf/encoding, found by looking there."""

from collections.abc import Callable

import pytest

from nmt.checks import parity
from nmt.checks.example import build_perturbed
from nmt.config.catalog import entries_of, options_of
from nmt.config.settings import Settings
from nmt.encodings.registry import SITES, create, find, names
from nmt.encodings.registry import options_of as arguments_of
from nmt.testing import check_encoding
from tests.composing import every_encoding
from tests.encodings.attending import dims

OPTIONS = options_of("encoding")
# A permuted sentence has the same states, permuted
ORDERLESS = {"none", "sigmoid_attention", "ssmax", "gated_attention", "coverage"}
COMPOSED = ("[absolute,relative]", "[lstm,relative]", "[rotary,alibi,relative_key]")
ZERO_INITIALISED = {  # classes that can start by changing nothing
    *("Axial", "BiasTable", "Composite", "Convolution", "Cope", "Coverage", "Diet", "Fire"),
    *("Floater", "Graformer", "GraphTransformer", "Huang", "Irpe", "Laplacian", "Learned"),
    *("PerLanguage", "Relative", "ShawAbsolute", "SprAbsolute", "Structural", "T5", "Tpe"),
    *("TransformerXl", "XlPe"),
}
Make = Callable[..., Settings]
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


@pytest.mark.parametrize("option", [*every_encoding(), "[lstm,alibi,relative]"])
def test_an_encoding_does_all_that_it_must(option: str, settings_of: Make) -> None:
    settings = settings_of(f"encoding={option}")
    matters = option not in ORDERLESS
    check_encoding(settings, order_matters=matters, tokens=9, precisions=["float32"])


@pytest.mark.slow
@pytest.mark.parametrize("option", [*every_encoding(), *COMPOSED])
def test_decoding_longer_and_in_bfloat16(option: str, settings_of: Make) -> None:
    model = build_perturbed(settings_of(f"encoding={option}", "seed=2"))
    assert [d.finding for d in parity.measure(model) if not d.passed] == []


def test_every_option_of_every_class_stands_in_some_file() -> None:
    """An option that no file shows would be one that no reader finds."""
    shown: dict[str, set[str]] = {}
    for option in OPTIONS:
        for name, options in entries_of(option).items():
            given = set(options) - {"use", "where", "at"}
            shown.setdefault(str(options.get("use", name)), set()).update(given)
    assert set(names()) - set(shown) <= {"none"}
    for use, given in shown.items():
        assert given == set(arguments_of(find(use))), f"{use}: options without a line in a file"
        assert bool(find(use).hooks) == (use != "none")


def test_which_can_be_made_to_change_nothing() -> None:
    """That they then do is among the checks."""
    offering = set()
    for option in OPTIONS:
        entries = {
            name: {key: value for key, value in options.items() if value != "${tau}"}
            for name, options in entries_of(option).items()
        }
        for site in SITES:
            every = create(entries, dims(site, head_dim=16))
            offering |= {type(e).__name__ for e in every if e.zero_initialise()}
    assert offering == ZERO_INITIALISED
