"""Attention by the kernel as two operators of torch, and who gets them; formulas stand for Triton.

The compiler takes them into one graph.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from nmt.kernels import choice, relative
from nmt.model.attention import Attention
from nmt.model.transformer import Transformer
from nmt.model.watch import watching
from tests.kernels import by_formulas

Make = Callable[..., Transformer]
Ids = Callable[..., Tensor]
Run = Callable[..., tuple[Tensor, object]]


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The kernel serves here, with formulas in place of Triton; whether each call was causal."""
    calls: list[bool] = []

    def forward(inputs: relative._Inputs, values: bool, call: relative._Call) -> object:
        calls.append(call.causal)
        return by_formulas.forward(inputs, values, call)

    monkeypatch.setattr(relative, "_forward", forward)
    monkeypatch.setattr(relative, "_backward", by_formulas.backward)
    torch._dynamo.reset()
    counters.clear()
    return calls


def prove(monkeypatch: pytest.MonkeyPatch, number_format: torch.dtype) -> None:
    monkeypatch.setitem(choice.verified, choice.RELATIVE, ("cpu", number_format))


def learnt(
    model: Transformer, run: Run, ids: Ids, rows: int, length: int, low: bool = False
) -> list[Tensor]:
    """States and gradients of a padded batch; `low`: under autocast in bfloat16."""
    model.zero_grad()
    source, target = ids(rows, length), ids(rows, length - 1, seed=1)
    source[0, 4:] = 0
    torch.manual_seed(4)
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        states, _ = run(source, target)
    states.square().mean().backward()
    return [states.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "low"),
    [
        ("relative", False),
        ("relative", True),
        ("relative_key", False),
        ("relative_value", False),
        ("relative_per_head", False),
    ],
)
def test_one_graph_serves_all_shapes(
    option: str,
    low: bool,
    serving: list[bool],
    tiny: Make,
    ids: Ids,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prove(monkeypatch, torch.bfloat16 if low else torch.float32)
    share = 0.2 if low else 1e-4  # of the largest number, by rounding
    layers = "model.encoder_layers=1", "model.decoder_layers=1"
    model = tiny(f"encoding={option}", "model.dim=32", f"encoding.{option}.tau=3", *layers).eval()
    compiled = torch.compile(model.hidden, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((3, 9), (2, 12), (5, 7), (4, 20)):
        results = [learnt(model, run, ids, *shape, low) for run in (compiled, model.hidden)]
        assert serving == [False, True] * 2  # in encoder and decoder
        serving.clear()
        with monkeypatch.context() as patch:
            patch.delitem(choice.verified, choice.RELATIVE)
            plain = learnt(model, model.hidden, ids, *shape, low)
        assert not serving
        for mine in results:
            for one, other in zip(mine, plain, strict=True):
                bound = share * max(float(other.abs().max()), 1e-3)
                assert float((one - other).abs().max()) < bound
    assert counters["stats"]["unique_graphs"] == 1


def test_layers_that_are_computed_again_drop_the_same(
    serving: list[bool], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(monkeypatch, torch.float32)
    model = tiny("encoding=relative", "model.dim=32", "encoding.relative.tau=3").train()
    for module in model.modules():
        if isinstance(module, Attention):
            module.dropout = 0.4
    once = learnt(model, model.hidden, ids, 3, 9)
    model.encoder.recompute = model.decoder.recompute = True
    again = learnt(model, model.hidden, ids, 3, 9)
    assert len(serving) == 4 + 8
    assert all(map(torch.equal, once, again))
    torch.manual_seed(5)
    assert not torch.equal(once[0], model.hidden(ids(3, 9), ids(3, 8, seed=1)).states)


@pytest.mark.parametrize(
    "option",
    [
        *("relative", "relative_per_head", "relative_sinusoidal"),
        *("[absolute,relative]", "[rotary,relative_value]", "[relative_key,lstm]"),
    ],
)
def test_a_model_learns_by_the_kernel_what_it_learns_by_formulas(
    option: str, serving: list[bool], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(f"encoding={option}", "model.dim=32", "tau=3")
    plain = learnt(model, model.hidden, ids, 3, 9)
    assert not serving
    prove(monkeypatch, torch.float32)
    by_kernel = learnt(model, model.hidden, ids, 3, 9)
    assert sorted(serving) == [False, False, True, True]  # two layers of encoder and decoder
    for mine, other in zip(by_kernel, plain, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_who_watches_and_who_adds_a_bias_gets_the_formulas(
    serving: list[bool], tiny: Make, ids: Ids, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(monkeypatch, torch.float32)
    model = tiny("encoding=relative", "model.dim=32")
    source, target = ids(2, 6), ids(2, 5, seed=1)
    seen: list[object] = []
    with watching(model, seen.append):
        model(source, target)
    assert seen and not serving
    tiny("encoding=[relative,alibi]", "model.dim=32")(source, target)
    assert not serving
    model(source, target)
    assert serving
