"""Properties that hold for whatever stands in conf/encoding, found by looking there."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.config import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.composition import HOOKS, hooks_of
from nmt.encodings.lookup import find, names
from nmt.encodings.positions import Index
from nmt.encodings.registry import options_of as arguments_of
from nmt.model import example
from nmt.model.example import Sentences
from nmt.model.invariance import fault
from nmt.model.state import State
from nmt.model.transformer import Transformer
from nmt.overrides.options import options_of

OPTIONS = options_of("encoding")
# A permuted sentence has the same states, permuted
ORDERLESS = {"none", "sigmoid_attention", "ssmax"}
COMPOSED = [*OPTIONS, "[absolute,relative]", "[lstm,relative]", "[rotary,alibi,relative_key]"]
Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

every = pytest.mark.parametrize("option", COMPOSED)
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


def entries(model: Transformer) -> list[Encoding]:
    both = (model.encoder_encodings, model.decoder_encodings)
    return [e for site in both for e in site.entries if isinstance(e, Encoding)]


def differ(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number: rounding grows with both."""
    return float((a - b).detach().abs().max() / b.detach().abs().max())


def beside(model: Transformer, source: Tensor) -> dict[str, Tensor]:
    """The columns that a model reads, made up."""
    return example.columns(model.columns, source)


def start(model: Transformer, source: Tensor, target: Tensor) -> State:
    lengths = (target != 0).sum(1) if model.needs_lengths else None
    return model.start(source, beside(model, source), lengths)


@every
def test_order_matters_to_the_encoder(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, order = ids(2, 9), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    columns = beside(model, source)
    straight = model.encode(source, columns)[0][:, order]
    permuted = model.encode(source[:, order], columns)[0]
    if option in ORDERLESS:
        assert differ(straight, permuted) < 1e-5
    else:
        assert differ(straight, permuted) > 1e-3


@every
def test_order_matters_to_the_decoder(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(1, 5), ids(1, 8, seed=2)
    swapped = target[:, [1, 0, *range(2, 8)]]
    columns = beside(model, source)
    before, after = model(source, target, columns), model(source, swapped, columns)
    assert differ(before[:, -1], after[:, -1]) > 1e-4


@every
def test_later_tokens_and_padding_change_nothing(option: str, tiny: Make, ids: Ids) -> None:
    """Nor a common shift, where an entry says so: what a training tries first, on longer text."""
    model = tiny(f"encoding={option}")
    source = ids(3, 9)
    source[1, 6:] = 0
    text = Sentences(source, ids(3, 9, seed=3), beside(model, source))
    assert fault(model, text) is None


@every
def test_rows_of_a_batch_do_not_meet(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(3, 6), ids(3, 7, seed=3)
    columns = beside(model, source)
    rows = [slice(i, i + 1) for i in range(3)]
    one = [model(source[i], target[i], {n: c[i] for n, c in columns.items()}) for i in rows]
    assert differ(torch.cat(one), model(source, target, columns)) < 1e-5


@pytest.mark.parametrize("option", [*COMPOSED, "[lstm,alibi,relative]"])
def test_a_common_shift_changes_nothing_if_relative(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(2, 6), ids(2, 7, seed=3)
    for e in entries(model):
        e.positions = Index()  # whatever `at:` says, the encoding is asked about plain shifts
    before = model(source, target, columns := beside(model, source))
    for e in entries(model):
        e.positions = Index(start=5)
    shift = differ(before, model(source, target, columns))
    if all(site.relative for site in model.sites.values()):
        assert shift < 1e-5
    else:
        assert shift > 1e-3


@every
@pytest.mark.parametrize("kind", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_token_by_token_equals_all_at_once(option: str, kind: str, tiny: Make, ids: Ids) -> None:
    """Also with padding, a prefix of several tokens, a reordered beam and a used module.

    The cache holds room for more positions than it has (it doubles), so reading too far shows.
    """
    model = tiny(f"encoding={option}")
    source, target = ids(3, 6), ids(3, 18, seed=3)
    source[0, 4:] = 0
    rows = torch.tensor([2, 0, 0, 1])
    bound = 1e-5 if kind == "float32" else 0.15
    with torch.autocast("cpu", enabled=kind == "bfloat16"), torch.inference_mode():
        fresh = start(model, source, target)
        first = [model.step(target[:, t], fresh) for t in range(6)]
        full = model(source, target, beside(model, source))
        assert differ(torch.stack(first, 1), full[:, :6]) < bound
        state = start(model, source, target)  # after a full pass
        prefix = model.logits(model.advance(target[:, :7], state))
        assert differ(prefix, full[:, :7]) < bound
        state.reorder(rows)
        for t in range(7, 18):
            assert differ(model.step(target[rows, t], state), full[rows, t]) < bound


@every
def test_gradients_reach_each_parameter(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}").train()
    source = ids(4, 9)
    hidden = model.hidden(source, ids(4, 9, seed=1), beside(model, source))
    loss = model.logits(hidden.states).square().sum()
    (loss if hidden.side_loss is None else loss + hidden.side_loss).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.abs().sum() > 0, name


@every
def test_long_sequences_and_fully_masked_rows_stay_finite(
    option: str, tiny: Make, ids: Ids
) -> None:
    model = tiny(f"encoding={option}")
    source = ids(2, min(200, model.source_limit or 200))
    source[1] = 0
    source[1, 0] = 5
    target = ids(2, min(150, model.target_limit or 150))
    assert model(source, target, beside(model, source)).isfinite().all()
    source[1] = 0  # nothing at all to look at
    assert model(source, ids(2, 5), beside(model, source)).isfinite().all()


@pytest.mark.parametrize("option", OPTIONS)
def test_positions_are_read_as_the_class_says(option: str, tiny: Make, ids: Ids) -> None:
    """`takes` says whether positions are read at all, and whether halves may stand among them."""
    model = tiny(f"encoding={option}")
    source, target = ids(2, 6), ids(2, 7, seed=3)
    for e in entries(model):
        e.positions = Index()
    columns = beside(model, source)
    before = model(source, target, columns)
    kinds = {type(e).takes for e in entries(model)}
    for e in entries(model):
        e.positions = Index(step=2)
    changed = differ(before, model(source, target, columns)) > 1e-5
    assert changed == bool(kinds - {"nothing"})
    if kinds == {"real"}:
        for site in model.sites.values():
            site.scale_positions(0.25)
        between = model(source, target, columns)
        assert between.isfinite().all() and differ(before, between) > 1e-5
    else:
        assert entries(model), "without entries nothing is asked, and nothing can refuse"
        with pytest.raises(ValueError, match="positions cannot be scaled, because"):
            for site in model.sites.values():
                site.scale_positions(0.25)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_zero_initialised_encoding_changes_nothing_and_can_learn(
    option: str, tiny: Make, ids: Ids
) -> None:
    """What `zero_initialise` promises: step 0 is exactly the model that got the encoding."""
    model = tiny(f"encoding={option}")
    source, target = ids(3, 9), ids(3, 9, seed=1)
    columns = beside(model, source)
    zeroed = [e for e in entries(model) if e.zero_initialise()]
    if not zeroed:
        pytest.skip("cannot be zero-initialised")
    with_it = model(source, target, columns)
    with_it.square().sum().backward()
    for e in zeroed:
        assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in e.parameters()), e.name
    for site in model.sites.values():
        site.entries = torch.nn.ModuleList(e for e in site.entries if e not in zeroed)
    assert differ(with_it, model(source, target, columns)) < 1e-5


def test_options_of_every_class_stand_in_some_file(settings_of: Callable[..., Settings]) -> None:
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


def test_every_module_has_an_option_and_overrides_a_hook(
    settings_of: Callable[..., Settings],
) -> None:
    used = {
        str(options.get("use", name))
        for option in OPTIONS
        for name, options in settings_of(f"encoding={option}").encoding.items()
    }
    assert set(names()) - used <= {"none"}
    for name in names():
        assert set(hooks_of(find(name))) <= set(HOOKS)
        assert bool(hooks_of(find(name))) == (name != "none")
