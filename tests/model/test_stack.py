"""Layers that are shared, and that have no residual; feed-forward sublayers."""

from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor

from nmt.model.layers import ComplexFeedForward, FeedForward, Layer, Stack
from nmt.model.transformer import Transformer

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]


def copy_layers(shared: Stack, own: Stack) -> None:
    """Give every layer of a stack the weights of the one shared layer."""
    for layer in own.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    own.norm.load_state_dict(shared.norm.state_dict())


@pytest.mark.parametrize("dropped", ["[]", "[1,3]"])
def test_shared_layers_equal_as_many_equal_layers(dropped: str, tiny: Make, ids: Ids) -> None:
    """Also where a pass has no residual: passes count, whichever layer they go through."""
    words = ("model.encoder_layers=3", f"model.drop_residual={dropped}")
    shared, own = tiny("model.share_layers=true", *words), tiny(*words)
    assert len(shared.encoder.layers) == 1 and len(own.encoder.layers) == 3
    copy_layers(shared.encoder, own.encoder)
    copy_layers(shared.decoder, own.decoder)
    for name in ("source_embedding", "target_embedding", "output"):
        getattr(own, name).load_state_dict(getattr(shared, name).state_dict())
    source, target = ids(2, 7), ids(2, 5, seed=1)
    assert torch.equal(shared(source, target), own(source, target))


@pytest.mark.parametrize("shared", ["true", "false"])
def test_dropping_a_residual_changes_that_pass_alone(shared: str, tiny: Make, ids: Ids) -> None:
    model = tiny("model.drop_residual=[2]", f"model.share_layers={shared}")
    passes: list[tuple[Tensor, Tensor]] = []  # what came in, what came out
    attended: list[Tensor] = []
    for layer in cast(list[Layer], list(model.encoder.layers)):
        layer.around_attention.register_forward_hook(
            lambda _, given, result: passes.append((given[0], result))
        )
        layer.attention.register_forward_hook(lambda _, given, result: attended.append(result))
    model.encode(ids(2, 7))
    (x, first), (_, second) = passes
    assert torch.equal(first, x + attended[0]) and torch.equal(second, attended[1])


def test_complex_feedforward_is_complex_arithmetic(tiny: Make) -> None:
    model = tiny("encoding=complex_order")
    layer = model.encoder.layers[0].feedforward
    assert isinstance(layer, ComplexFeedForward)
    x = torch.randn(6, 5, 16)

    def times(which: str, z: Tensor) -> Tensor:
        real, imaginary = getattr(layer.real, which), getattr(layer.imaginary, which)
        w = torch.complex(real.weight, imaginary.weight)
        bias = torch.complex(real.bias - imaginary.bias, real.bias + imaginary.bias)
        return z @ w.mT + bias

    h = times("inner", torch.complex(x[0::2], x[1::2]))
    y = times("outer", torch.complex(h.real.relu(), h.imag.relu()))
    expected = torch.stack([y.real, y.imag], 1).flatten(0, 1)
    assert torch.allclose(layer(x), expected, atol=1e-5)
    assert isinstance(tiny().encoder.layers[0].feedforward, FeedForward)
