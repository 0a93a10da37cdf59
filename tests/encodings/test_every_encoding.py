"""Properties that hold for whatever stands in conf/encoding, found by looking there."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from nmt.checks import parity, run
from nmt.checks.example import perturbed
from nmt.checks.properties import CHECKS
from nmt.config.catalog import options_of
from nmt.config.settings import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.context import Context
from nmt.encodings.positions import Index
from nmt.encodings.registry import SITES, create, find, names
from nmt.encodings.registry import options_of as arguments_of
from nmt.encodings.site import Encodings
from nmt.testing import check_encoding
from tests.composing import few_representatives
from tests.encodings.attending import dims

OPTIONS = options_of("encoding")
# A permuted sentence has the same states, permuted
ORDERLESS = {"none", "sigmoid_attention", "ssmax", "gated_attention", "coverage"}
COMPOSED = [
    *(*OPTIONS, "[absolute,relative]", "[lstm,relative]"),
    *("[rotary,alibi,relative_key]", "[lstm,alibi,relative]"),
]
ZERO_INITIALISED = {  # classes that can start by changing nothing
    *("Axial", "BiasTable", "Composite", "Convolution", "Cope", "Coverage", "Diet", "Fire"),
    *("Floater", "Graformer", "GraphTransformer", "Huang", "Irpe", "Laplacian", "Learned"),
    *("PerLanguage", "Relative", "ShawAbsolute", "SprAbsolute", "Structural", "T5", "Tpe"),
    *("TransformerXl", "XlPe"),
}
UNTRIED = ("Floater", "Wavelet")  # path without gaps, see test_floater.py; all but alike far away
ALIKE_WHERE_FAR = {  # also in float32; Fading is an example of docs/adding-an-encoding.md
    *("DaTransformer", "Fading", "Gaussian", "Irpe", "SlidingWindow")
}
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
    checks = [name for name in CHECKS if name not in COSTLY]
    results = run.run_checks(model, option not in ORDERLESS, precisions=(), only=checks)
    assert not run.failures(results)
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


def encodings_of(option: str, settings_of: Make, *sites: str) -> list[Encoding]:
    """Those of an option, in two heads of 16 components."""
    entries = settings_of(f"encoding={option}").encoding
    return [e for site in sites for e in create(entries, dims(site, head_dim=16))]


def test_which_can_be_made_to_change_nothing(settings_of: Make) -> None:
    """That they then do is among the checks."""
    every = [e for option in OPTIONS for e in encodings_of(option, settings_of, *SITES)]
    assert {type(e).__name__ for e in every if e.zero_initialise()} == ZERO_INITIALISED


@pytest.mark.parametrize("option", OPTIONS)
def test_neighbours_far_away_differ_in_bfloat16(option: str, settings_of: Make) -> None:
    """Words 300 and 301, which bfloat16 cannot tell apart: they differ where float32 differs."""
    torch.manual_seed(0)
    at = torch.tensor([[0, 300, 301]])
    columns = dict.fromkeys(("heads", "words", "order"), 0 * at) | {"language": at[:, :1]}
    for e in encodings_of(option, settings_of, "encoder", "decoder"):
        x = torch.ones(e.streams, 3, 32, dtype=torch.bfloat16)
        tokens = (0 * at).expand(e.streams, -1)
        context = Context(e.dims.site, at, at, at, rows=e.streams, tokens=tokens, columns=columns)
        context.lengths = torch.tensor([1000])
        reads = e.position_type == "real" or (e.num_positions or 0) > 301
        if reads and type(e).__name__ not in UNTRIED:
            e.positions = Index()
            full = [differ(t) for t in answers(Encodings([e]), x.float(), context)]
            with torch.autocast("cpu", torch.bfloat16):
                assert [differ(t) for t in answers(Encodings([e]), x, context)] == full, type(e)
            assert any(full) or type(e).__name__ in ALIKE_WHERE_FAR, type(e)


def differ(answer: Tensor) -> bool:
    """Whether the last two of three words differ in any number: [.., 3, ..] of `answers`."""
    return bool((answer[:, :, 1] != answer[:, :, 2]).any())


def answers(site: Encodings, x: Tensor, context: Context) -> Iterator[Tensor]:
    """What the first hook that reads places makes of words that are alike: [.., word, ..]."""

    def split(*inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.unflatten(-1, (2, 16)).transpose(1, 2) for t in inputs)

    (e,) = site
    if "embed" in e.hooks:
        yield site.embed(x, context)[:, None]
    elif "layer" in e.hooks:
        yield site.layer(x, 0, context)[:, None]
    elif "project" in e.hooks:
        yield from site.project(split, x, x, x, 0, context)[:2]  # type: ignore[arg-type]
    elif "bias" in e.hooks:
        bias = site.bias(0, context)
        if bias is not None:
            assert bias.dtype == torch.float32
            yield bias[:, :, :1].mT  # of keys
    elif "scores" in e.hooks:
        q, k = split(x, x)
        s = site.scores(q, k, 0, context)
        yield from (s[..., :1], s[:, :, :1].mT)  # of queries, and of keys
