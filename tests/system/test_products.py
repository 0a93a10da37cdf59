"""oneDNN's products are torch's own to the last bits, and int8 is as near as rounding allows."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.model.transformer import Transformer
from nmt.system import products
from nmt.system.machine import this_machine
from nmt.system.products import Int8, Linear, Packed, add_gradient, product
from nmt.training import loss

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN"
)


@pytest.fixture
def onednn(pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(onednn=True)
    monkeypatch.setattr(products, "ONEDNN_FROM", 1)


class Counted(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))


SHAPES = [(7, 5), (2, 3, 5, 9), (5,), (2, 0, 5)]


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_layer_and_its_gradients_are_torchs_own(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(shape, requires_grad=True), Linear(shape[-1], 6, bias=bias)
    expected = F.linear(x, layer.weight, layer.bias)
    found, g = layer(x), torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    inputs = [x, *layer.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, g), torch.autograd.grad(expected, inputs, g)
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_weight_laid_out_beforehand_gives_the_same(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(shape), Linear(shape[-1], 6)
    x = x.transpose(0, -2) if len(shape) > 2 else x  # read with gaps
    torch.nn.init.normal_(layer.bias)
    with torch.no_grad():
        torch.testing.assert_close(Packed(layer)(x), F.linear(x, layer.weight, layer.bias))


class Weights(TorchDispatchMode):
    """Whether each weight that oneDNN was given lay in memory without gaps."""

    def __init__(self) -> None:
        super().__init__()
        self.dense: list[bool] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() == "mkldnn::_linear_pointwise":
            self.dense.append(args[1].is_contiguous() or args[1].T.is_contiguous())
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(
    "weight",
    [
        pytest.param(torch.arange(48.0).view(6, 8)[:, :5], id="part of each row"),
        pytest.param(torch.arange(48.0).view(8, 6).mT[:, :5], id="rows, transposed"),
        pytest.param(torch.arange(48.0).view(6, 8)[:, :5].contiguous()[::2], id="every other row"),
        pytest.param(torch.arange(60.0).view(6, 10)[:, ::2], id="every other column"),
    ],
)
def test_no_weight_with_gaps_reaches_onednn(weight: Tensor) -> None:
    """It has no kernel for these but its reference, which takes hundreds of times as long."""
    x = torch.randn(4, 5, requires_grad=True)
    with Weights() as seen:
        found = product(x, weight)
        (by_x,) = torch.autograd.grad(found.sum(), x)
    assert seen.dense == [True, True]
    torch.testing.assert_close(found, x @ weight.T)
    torch.testing.assert_close(by_x, weight.sum(0).expand(4, 5))


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("outputs", [3, 9])
@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16])
def test_gradients_are_added_up_in_the_format_of_their_sum(outputs: int, low: torch.dtype) -> None:
    of_outputs, inputs = torch.randn(7, outputs).to(low), torch.randn(7, 5).to(low)
    total = torch.ones(outputs, 5)
    add_gradient(total, of_outputs, inputs)
    assert total.dtype == torch.float32
    bound = 1e-5 if low == torch.float32 else 0.05
    expected = 1 + of_outputs.float().T @ inputs.float()
    torch.testing.assert_close(total, expected, rtol=bound, atol=bound)


def learned(model: Any) -> tuple[Counter[str], list[Tensor]]:
    """The operations of one update, and the gradients."""
    source, target = torch.randint(4, 20, (3, 7)), torch.randint(4, 20, (3, 5))
    with Counted() as counted:
        states = model.hidden(source, target, {}).flatten(0, 1)
        loss.smoothed_loss(states, model.output, target.flatten(), 0.1)[0].backward()
    return counted.of, [p.grad for p in model.parameters() if p.grad is not None]


def test_all_layers_of_a_model_learn_by_it(
    tiny: Callable[..., Transformer], pretend: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = []
    monkeypatch.setattr(products, "ONEDNN_FROM", 1)
    for by_onednn in (True, False):
        pretend(onednn=by_onednn)
        torch.manual_seed(0)
        ways.append(learned(tiny("encoding=absolute").train()))
    (with_onednn, gradients), (without, expected) = ways
    linear = "mkldnn::_linear_pointwise"
    assert not without[linear]
    assert not with_onednn["aten::addmm"] + with_onednn["aten::addmm_"]
    by_weights = sum(without[name] - with_onednn[name] for name in ("aten::addmm", "aten::mm"))
    assert with_onednn[linear] == by_weights + without["aten::addmm_"]
    assert with_onednn["aten::mm"] == 1  # a sum over the tokens of the loss
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b)


by_vnni = pytest.mark.skipif(
    not this_machine().int8, reason="this processor adds products in 16 bits"
)


@by_vnni
def test_a_layer_in_8_bits_is_as_near_as_rounding_allows() -> None:
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 48), torch.randn(5, 3, 64) * torch.logspace(-3, 3, 5)[:, None, None]
    x[1, 1] = 0
    rounded = Int8(linear)
    y, exact = rounded(x), linear(x)
    assert y.shape == exact.shape
    weight = linear.weight.abs().amax(1) / 127
    scale = x.abs().amax(-1, keepdim=True) / 127
    off = x.abs().sum(-1, keepdim=True) * weight / 2  # half a unit of each weight
    off = off + scale / 2 * (linear.weight.abs().sum(1) + 64 * weight / 2)  # and of each input
    assert ((y - exact).abs() <= off + 1e-5 * exact.abs() + 1e-6).all()
    assert (y - exact).abs().max() > 0
    assert torch.equal(rounded(x[3:4, :1]), y[3:4, :1])  # rows keep apart
    assert rounded(x[:0]).shape == (0, 3, 48)
