"""Properties that hold for whatever stands in conf/encoding, found by looking there."""

from collections.abc import Callable

import pytest

from nmt.config import Settings
from nmt.encodings.lookup import find, names
from nmt.encodings.registry import options_of as arguments_of
from nmt.inspect import conformance, parity
from nmt.inspect.specimen import perturbed
from nmt.overrides.options import options_of
from nmt.testing import check_encoding
from tests.composing import few_representatives

OPTIONS = options_of("encoding")
# A permuted sentence has the same states, permuted
ORDERLESS = {"none", "sigmoid_attention", "ssmax", "gated_attention", "coverage"}
COMPOSED = [
    *(*OPTIONS, "[absolute,relative]", "[lstm,relative]"),
    *("[rotary,alibi,relative_key]", "[lstm,alibi,relative]"),
]
Make = Callable[..., Settings]

every = pytest.mark.parametrize("option", COMPOSED)
SEVERAL = tuple(option for option in COMPOSED if option.startswith("["))
COSTLY = {"recomputation", "long and empty sequences"}  # in seconds; then in the slow tests alone
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


@pytest.mark.parametrize("option", [*few_representatives(), SEVERAL[-1]])
def test_an_encoding_does_all_that_it_must(option: str, settings_of: Make) -> None:
    settings = settings_of(f"encoding={option}")
    matters = option not in ORDERLESS
    check_encoding(settings, order_matters=matters, tokens=18, precisions=["float32"])


@pytest.mark.parametrize("option", [o for o in OPTIONS if o not in few_representatives()])
def test_the_others_do_nearly_all_of_it(option: str, settings_of: Make) -> None:
    model = perturbed(settings_of(f"encoding={option}"))
    checks = [name for name in conformance.CHECKS if name not in COSTLY]
    results = conformance.run_checks(model, option not in ORDERLESS, precisions=(), only=checks)
    assert not conformance.failures(results)
    ways = [c for c in parity.CONDITIONS if c.name in ("beams", "padding")]
    measured = list(parity.measure(model, 18, ["float32"], conditions=ways))
    assert [d.finding for d in measured if not d.passed] == [] and len(measured) == len(ways)


@every
@pytest.mark.slow
def test_decoding_longer_and_in_bfloat16(option: str, settings_of: Make) -> None:
    settings = settings_of(f"encoding={option}", "seed=2")
    check_encoding(settings, order_matters=option not in ORDERLESS)


def test_options_of_every_class_stand_in_some_file(settings_of: Make) -> None:
    """An option that no file shows would be one that no reader finds."""
    shown: dict[str, set[str]] = {}
    for option in OPTIONS:
        for name, options in settings_of(f"encoding={option}").encoding.items():
            use = str(options.get("use", name))
            given = set(options) - {"use", "where", "at"}
            assert given <= set(arguments_of(find(use))), option
            shown.setdefault(use, set()).update(given)
    for use, given in shown.items():
        assert given == set(arguments_of(find(use))), f"{use}: options without a line in a file"


def test_every_module_has_an_option_and_overrides_a_hook(settings_of: Make) -> None:
    used = {
        str(options.get("use", name))
        for option in OPTIONS
        for name, options in settings_of(f"encoding={option}").encoding.items()
    }
    assert set(names()) - used <= {"none"}
    for name in names():
        assert bool(find(name).hooks) == (name != "none")
