"""A copy of a model is what `copy.deepcopy` makes of any module: equal, and nothing shared."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.model.copies import copied
from nmt.model.transformer import Transformer

OVERRIDES = [
    ["encoding=relative", "model.tie=all"],
    ["encoding=[lstm,alibi]"],
    ["encoding=sine_spe"],
    ["encoding=complex_order", "model.share_layers=true", "model.halting=true"],
]


def held(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """All that a module and those below it hold, by place."""
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            yield f"{path}.{name}", value
            if isinstance(value, dict):
                yield from ((f"{path}.{name}[{key}]", v) for key, v in value.items())


@pytest.mark.parametrize("overrides", OVERRIDES, ids=" ".join)
def test_it_is_what_deepcopy_makes(overrides: list[str], tiny: Callable[..., Transformer]) -> None:
    model = tiny(*overrides)
    by_torch = object.__new__(Transformer)  # as if Transformer had no __deepcopy__
    by_torch.__setstate__(deepcopy(model.__getstate__()))
    one, other, of = dict(held(deepcopy(model))), dict(held(by_torch)), dict(held(model))
    assert list(one) == list(other) == list(of)
    for place, value in one.items():
        assert type(value) is type(other[place]), place
        if isinstance(value, Tensor):
            assert torch.equal(value, of[place]) and value is not of[place], place
            assert not value.numel() or value.data_ptr() != of[place].data_ptr(), place
        elif isinstance(value, dict | set | nn.Module):
            assert value is not of[place], place
        elif isinstance(value, bool | int | float | str | None):
            assert value == of[place], place


def test_it_computes_the_same_and_goes_its_own_way(
    tiny: Callable[..., Transformer], ids: Callable[..., Tensor]
) -> None:
    model = tiny("encoding=[lstm,relative]")
    copy, text = deepcopy(model), (ids(2, 5), ids(2, 4, seed=1))
    before = model(*text)
    assert torch.equal(copy(*text), before)
    with torch.no_grad():
        for p in copy.parameters():
            p.zero_()
    assert torch.equal(model(*text), before) and not torch.equal(copy(*text), before)


def test_what_parts_share_their_copies_share(tiny: Callable[..., Transformer]) -> None:
    model = tiny("encoding=none", "model.tie=all")
    seen: dict[str, int] = {}
    shared = [model.encoder, {"once": seen}]
    model.encoder.shared, model.decoder.shared = shared, shared  # type: ignore[assignment]
    copy: Any = deepcopy(model)
    assert copy.output.weight is copy.target_embedding.weight is copy.source_embedding.weight
    assert copy.encoder.shared is copy.decoder.shared is not shared
    assert copy.encoder.shared[0] is copy.encoder
    assert copy.encoder.shared[1]["once"] is not seen


def test_what_the_memo_holds_is_not_copied(tiny: Callable[..., Transformer]) -> None:
    model = tiny("encoding=lstm")
    copy = deepcopy(model, {id(p): p for p in model.parameters()})
    assert all(p is q for p, q in zip(copy.parameters(), model.parameters(), strict=True))
    assert copy.encoder is not model.encoder


def test_a_part_that_says_how_it_is_copied_is_asked() -> None:
    class Own(nn.Module):
        def __deepcopy__(self, memo: dict[int, Any]) -> str:
            return "its own"

    copy = copied(nn.ModuleDict({"part": Own()}), {})
    assert copy._modules == {"part": "its own"}
