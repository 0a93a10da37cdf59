"""torch.compile makes one graph of a pass, and few of them serve many shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.checks import example
from nmt.model.transformer import Transformer
from tests.composing import few_representatives

Make = Callable[..., Transformer]
SIZE = [f"model.{which}dropout=0" for which in ("", "attention_", "feedforward_")]  # of a CPU's own
SIZE += ["model.encoder_layers=1", "model.decoder_layers=1"]
BROKEN = {  # by what numbers say, or by networks that torch does not look into
    *("graformer", "spr_relative", "structural", "graph_transformer", "lstm")
}
SHAPES = [
    *((2, 5, 4), (3, 6, 9), (4, 9, 3), (2, 17, 12), (5, 4, 21), (2, 40, 30), (9, 2, 5))
]  # rows, source, target
MOST = 3  # compilations; two in torch 2.13


@pytest.fixture(autouse=True)
def afresh() -> None:
    """No graphs of other tests."""
    torch._dynamo.reset()


def given(model: Transformer, rows: int = 2, source: int = 7, target: int = 6) -> tuple[Any, ...]:
    ids = example.ids(rows, source, 30)
    target_ids = example.ids(rows, target, 30, seed=1)
    return ids, target_ids, example.columns(model.entries, ids)


@pytest.mark.slow
@pytest.mark.parametrize("option", [*few_representatives(), "lstm"])
def test_a_pass_is_one_graph(option: str, tiny: Make) -> None:
    model = tiny(f"encoding={option}", *SIZE).train()
    found = torch._dynamo.explain(model.hidden)(*given(model))
    assert (found.graph_break_count > 0) == (option in BROKEN), found.break_reasons


@pytest.mark.slow
def test_few_graphs_serve_many_shapes(tiny: Make) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend  # seconds, which others need not

    model = tiny("encoding=relative", *SIZE).train()
    counting = CompileCounterWithBackend("aot_eager")

    compiled = torch.compile(model.hidden, backend=counting, fullgraph=True, dynamic=True)
    for shape in SHAPES:
        inputs = given(model, *shape)
        found = []
        for run in (model.hidden, compiled):
            model.zero_grad()
            run(*inputs).square().sum().backward()
            found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for own, other in zip(*found, strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
    assert 1 <= counting.frame_count <= MOST
