"""Position interpolation (Chen et al. 2023): positions times a factor, where that has a meaning."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.encodings.base import Encoding
from nmt.encodings.biases.alibi import Alibi
from nmt.encodings.context import Context
from nmt.encodings.input.absolute import Absolute
from nmt.encodings.positions import Scaled
from nmt.encodings.positions_columns import ColumnPositions, Tree
from nmt.encodings.registry import create
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.site import Encodings
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, pass_over, qkv

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def by_hand(n: int, factor: float) -> Context:
    """A pass whose tokens stand at multiples of the factor."""
    at = torch.arange(n) * factor
    return Context("encoder", at[None], at[None], at[None], rows=2)


@pytest.mark.parametrize("factor", [0.5, 0.3, 2.0])
@pytest.mark.parametrize("kind", [Rotary, Absolute, Alibi])
def test_equals_positions_multiplied_by_hand(kind: type[Encoding], factor: float) -> None:
    scaled, plain = Encodings([kind(dims())]), Encodings([kind(dims())])
    scaled.scale_positions(factor)
    x = torch.randn(2, 9, 8)
    changed = scaled.embed(x, pass_over(9))
    assert torch.equal(changed, plain.embed(x, by_hand(9, factor)))
    q, k, v = qkv(9, dims())
    e = next(x for x in scaled.entries if isinstance(x, Encoding))
    got = attend(e, q, k, v, pass_over(9))
    wanted = attend(kind(dims()), q, k, v, by_hand(9, factor))
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(got, wanted, strict=True))
    before = attend(kind(dims()), q, k, v, pass_over(9))[0]
    moved = (got[0] - before).abs().max() > 1e-3 or (changed - plain.embed(x, pass_over(9))).any()
    assert bool(moved)


def test_a_second_factor_replaces_the_first() -> None:
    """Factors are of the positions of training, so 1 undoes them."""
    e = Encodings([Absolute(dims())])
    x = torch.zeros(2, 9, 8)
    for factor in (0.5, 0.25, 1.0):
        e.scale_positions(factor)
        assert torch.equal(e.embed(x, pass_over(9)), plain(x, factor))


def plain(x: Tensor, factor: float) -> Tensor:
    return Absolute(dims()).embed(x, by_hand(9, factor))


def test_columns_are_read_as_before() -> None:
    e = Encodings([Absolute(dims(positions=ColumnPositions("order")))])
    e.scale_positions(0.5)
    assert next(iter(e)).columns == {"order"}
    context = pass_over(3, rows=1)
    context.columns = {"order": torch.tensor([[2, 4, 0]])}
    at = torch.tensor([[1.0, 2.0, 0.0]])
    x = torch.zeros(1, 3, 8)
    assert torch.equal(
        e.embed(x, context), Absolute(dims()).embed(x, Context("encoder", at, at, at))
    )


@pytest.mark.parametrize("option", ["rotary", "absolute", "alibi", "[absolute,alibi]"])
def test_models_decode_with_scaled_positions(option: str, tiny: Make, ids: Ids) -> None:
    """Both sides scaled; token by token equals all at once, and differs from before."""
    model = tiny(f"encoding={option}")
    source, target = ids(2, 9), ids(2, 8, seed=1)
    before = model(source, target)
    for site in ("encoder", "decoder"):
        model.sites[site].scale_positions(0.5)
    full = model(source, target)
    assert (full - before).abs().max() > 1e-4
    state = model.start(source)
    steps = torch.stack([model.step(target[:, t], state) for t in range(8)], 1)
    assert (steps - full).abs().max() < 1e-5


@pytest.mark.parametrize(
    "option, why",
    [
        ("relative", "it knows whole positions only"),
        ("learned", "it knows whole positions only"),
        ("[relative,ssmax]", "it knows whole positions only"),
        ("lstm", "no encoding reads positions"),
        ("none", "no encoding reads positions"),
    ],
)
def test_refused_with_the_reason(option: str, why: str, tiny: Make) -> None:
    model = tiny(f"encoding={option}")
    with pytest.raises(ValueError, match=f"positions cannot be scaled, because {why}"):
        model.scale_positions(0.5)


def test_entries_that_read_no_positions_stay_as_they_are(tiny: Make, ids: Ids) -> None:
    """In a site and in all of the model, as rotary alone is scaled."""
    model = tiny("encoding=[rotary,ssmax,coverage]")
    source, target = ids(2, 9), ids(2, 8, seed=1)
    before = model(source, target)
    model.scale_positions(0.5)
    assert (model(source, target) - before).abs().max() > 1e-4
    scaled = {e.name: type(e.positions) is Scaled for e in model.entries}
    assert scaled == {"rotary": True, "ssmax": False, "coverage": False}
    q, k, v = qkv(9, dims())
    entries = create({"rotary": {}, "ssmax": {"start": 0.5}}, dims())
    assert Encodings(entries).scale_positions(0.5)
    wanted = attend(
        create({"rotary": {}, "ssmax": {"start": 0.5}}, dims()), q, k, v, by_hand(9, 0.5)
    )
    for a, b in zip(attend(entries, q, k, v, pass_over(9)), wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_distances_in_trees_cannot_be_scaled() -> None:
    with pytest.raises(ValueError, match="because its distances are counted along edges"):
        Encodings([Alibi(dims(positions=Tree()))]).scale_positions(0.5)
