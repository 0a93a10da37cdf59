"""trainer.compile: what cannot be compiled is refused, and the rest learns the same."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from nmt.corpus.prepare import Prepared
from nmt.errors import UserError
from nmt.training import loss
from tests.training import ranks, tiny
from tests.training.tiny import newest

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_compiles_on_gpus_that_can_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(device: torch.device, compile: object = "auto", twice: bool = False) -> bool:
        changes = {"trainer__compile": compile, "trainer__gradient_checkpointing": twice}
        return loss.should_compile(tiny.settings(**changes).trainer, device)

    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/clang" if name == "clang" else None)
    monkeypatch.delenv("CC", raising=False)
    assert compiled(CUDA) and not compiled(CUDA, twice=True) and not compiled(CPU)
    assert compiled(CPU, True) and not compiled(CUDA, False)
    with pytest.raises(UserError, match=r"not with trainer\.gradient_checkpointing=true"):
        compiled(CPU, True, twice=True)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not compiled(CUDA)


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
