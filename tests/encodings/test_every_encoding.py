"""Properties that hold for whatever stands in conf/encoding, found by looking there."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.cli.compose import options_of
from nmt.config import Settings
from nmt.encodings.base import Encoding
from nmt.encodings.composition import HOOKS, hooks_of
from nmt.encodings.positions import Index
from nmt.encodings.registry import find, names
from nmt.encodings.registry import options_of as arguments_of
from nmt.model.transformer import Transformer

OPTIONS = options_of("encoding")
COMPOSED = [*OPTIONS, "[absolute,relative]", "[lstm,relative]", "[rotary,alibi,relative_key]"]
Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]

every = pytest.mark.parametrize("option", COMPOSED)
pytestmark = pytest.mark.filterwarnings("ignore:.*enforce_sorted.*")


def entries(model: Transformer) -> list[Encoding]:
    both = (model.encoder_encodings, model.decoder_encodings)
    return [e for site in both for e in site.entries if isinstance(e, Encoding)]


def answers(model: Transformer) -> bool:
    return any(hooks_of(type(e)) for e in entries(model))


def differ(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


@every
def test_order_matters_to_the_encoder(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, order = ids(2, 9), torch.randperm(9, generator=torch.Generator().manual_seed(1))
    straight = model.encode(source)[0][:, order]
    permuted = model.encode(source[:, order])[0]
    if answers(model):
        assert differ(straight, permuted) > 1e-3
    else:
        assert differ(straight, permuted) < 1e-5  # without positions it is equivariant


@every
def test_order_matters_to_the_decoder(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(1, 5), ids(1, 8, seed=2)
    swapped = target[:, [1, 0, *range(2, 8)]]
    assert differ(model(source, target)[:, -1], model(source, swapped)[:, -1]) > 1e-4


@every
def test_padding_changes_nothing(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(2, 6), ids(2, 7, seed=3)
    longer, shorter = ids(1, 11, seed=4), ids(1, 9, seed=5)
    padded = torch.cat([torch.nn.functional.pad(source, (0, 5)), longer])
    padded_target = torch.cat([torch.nn.functional.pad(target, (0, 2)), shorter])
    alone = model(source, target)
    together = model(padded, padded_target)[:2, :7]
    assert differ(alone, together) < 1e-5


@every
def test_rows_of_a_batch_do_not_meet(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(3, 6), ids(3, 7, seed=3)
    one = torch.cat([model(source[i : i + 1], target[i : i + 1]) for i in range(3)])
    assert differ(one, model(source, target)) < 1e-5


@every
def test_the_future_changes_nothing(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(2, 6), ids(2, 9, seed=3)
    changed = target.clone()
    changed[:, 5] = 4 + (changed[:, 5] - 3) % 26
    before, after = model(source, target), model(source, changed)
    assert differ(before[:, :5], after[:, :5]) == 0
    assert differ(before[:, 5:], after[:, 5:]) > 1e-4


# Rotary under Shaw's keys is left out: turned queries meet vectors that are not turned.
@pytest.mark.parametrize("option", [*OPTIONS, "[absolute,relative]", "[lstm,alibi,relative]"])
def test_a_common_shift_changes_nothing_if_relative(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}")
    source, target = ids(2, 6), ids(2, 7, seed=3)
    before = model(source, target)
    for e in entries(model):
        e.positions = Index(start=5)
    shift = differ(before, model(source, target))
    if all(type(e).relative for e in entries(model)):
        assert shift < 1e-5
    else:
        assert shift > 1e-3


@every
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_token_by_token_equals_all_at_once(option: str, kind: str, tiny: Make, ids: Ids) -> None:
    """Also with padding, a prefix of several tokens, a reordered beam and a used module.

    The cache holds room for more positions than it has (it doubles), so reading too far shows.
    """
    model = tiny(f"encoding={option}")
    source, target = ids(3, 6), ids(3, 40, seed=3)
    source[0, 4:] = 0
    rows = torch.tensor([2, 0, 0, 1])
    bound = 1e-5 if kind == "float32" else 0.15
    with torch.autocast("cpu", enabled=kind == "bfloat16"), torch.inference_mode():
        fresh = model.start(source)
        first = [model.step(target[:, t], fresh) for t in range(20)]
        full = model(source, target)
        assert differ(torch.stack(first, 1), full[:, :20]) < bound
        state = model.start(source)  # after a full pass
        prefix = model.logits(model.advance(target[:, :7], state))
        assert differ(prefix, full[:, :7]) < bound
        state.reorder(rows)
        for t in range(7, 40):
            assert differ(model.step(target[rows, t], state), full[rows, t]) < bound


@every
def test_gradients_reach_each_parameter(option: str, tiny: Make, ids: Ids) -> None:
    model = tiny(f"encoding={option}").train()
    model(ids(4, 9), ids(4, 9, seed=1)).square().sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None and p.grad.abs().sum() > 0, name


@every
def test_long_sequences_and_fully_masked_rows_stay_finite(
    option: str, tiny: Make, ids: Ids
) -> None:
    model = tiny(f"encoding={option}")
    source = ids(2, 200)
    source[1] = 0
    source[1, 0] = 5
    assert model(source, ids(2, 150)).isfinite().all()
    source[1] = 0  # nothing at all to look at
    assert model(source, ids(2, 5)).isfinite().all()


@pytest.mark.parametrize("option", OPTIONS)
def test_the_file_says_all_that_the_constructor_takes(
    option: str, settings_of: Callable[..., Settings]
) -> None:
    settings = settings_of(f"encoding={option}")
    for name, options in settings.encoding.items():
        wanted = arguments_of(find(str(options.get("use", name))))
        given = set(options) - {"use", "where", "at"}
        shared = {"key", "value", "per_head", "reference"}
        assert given <= set(wanted)
        assert set(wanted) - given <= shared, f"{option}: options without a line in its file"


def test_every_module_has_an_option_and_overrides_a_hook() -> None:
    for name in names():
        assert name in OPTIONS
        assert set(hooks_of(find(name))) <= set(HOOKS)
        assert bool(hooks_of(find(name))) == (name != "none")
