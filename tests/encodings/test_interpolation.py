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
from nmt.encodings.rotary.rotary import Rotary
from nmt.encodings.site import SiteEncodings
from nmt.model.transformer import Transformer
from tests.encodings.attending import attend, dims, pass_over, qkv

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def by_hand(n: int, factor: float) -> Context:
    """A pass whose tokens stand at multiples of the factor."""
    at = torch.arange(n) * factor
    return Context("encoder", at[None], at[None], at[None], rows=2)


@pytest.mark.parametrize("factor", [0.3, 2.0])
@pytest.mark.parametrize("kind", [Rotary, Absolute, Alibi])
def test_equals_positions_multiplied_by_hand(kind: type[Encoding], factor: float) -> None:
    scaled, plain = SiteEncodings([kind(dims())]), SiteEncodings([kind(dims())])
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


def test_models_decode_with_scaled_positions(tiny: Make, ids: Ids) -> None:
    """Both sides scaled; token by token equals all at once, and differs from before."""
    model = tiny("encoding=[rotary,alibi,ssmax]")
    source, target = ids(2, 9), ids(2, 8, seed=1)
    before = model(source, target)
    model.scale_positions(0.5)
    scaled = {e.name: type(e.positions) is Scaled for e in model.entries}
    assert scaled == {"rotary": True, "alibi": True, "ssmax": False}
    full = model(source, target)
    assert (full - before).abs().max() > 1e-4
    state = model.start(source)
    steps = torch.stack([model.step(target[:, t], state) for t in range(8)], 1)
    assert (steps - full).abs().max() < 1e-5


@pytest.mark.parametrize(
    "option, why",
    [
        ("[relative,ssmax]", "it knows whole positions only"),
        ("spr_relative", "it knows whole positions only"),
        ("lstm", "no encoding reads positions"),
    ],
)
def test_refused_with_the_reason(option: str, why: str, tiny: Make) -> None:
    model = tiny(f"encoding={option}")
    with pytest.raises(ValueError, match=f"positions cannot be scaled, because {why}"):
        model.scale_positions(0.5)
