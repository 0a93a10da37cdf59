"""trainer.compile: what cannot be compiled is refused, and the rest learns the same."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.corpus.prepare import Prepared
from nmt.errors import UserError
from tests.training import ranks, tiny
from tests.training.tiny import newest


def test_layers_that_are_computed_twice_are_not_compiled() -> None:
    twice = {"trainer__compile": True, "trainer__gradient_checkpointing": True}
    with pytest.raises(UserError, match=r"not with trainer\.gradient_checkpointing=true"):
        tiny.settings(**twice)


@pytest.mark.slow
def test_two_ranks_compile_one_graph_and_learn_as_one_process_does(
    data: Prepared, tmp_path: Path
) -> None:
    """Whose gradients fill several buckets, with which torch would split the graph."""
    ranks.train(2, tmp_path, json.dumps({**tiny.WIDE, "trainer__compile": True}))
    assert [(tmp_path / f"graphs{rank}").read_text() for rank in range(2)] == ["1", "1"]
    tiny.train(tmp_path / "plain", data, **tiny.WIDE)
    one, two = (
        safetensors.torch.load_file(newest(tmp_path / run) / "model.safetensors")
        for run in ("plain", "run")
    )
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-5, atol=1e-5)
