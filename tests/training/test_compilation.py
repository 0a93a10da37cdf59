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
from tests.training.test_resume import newest

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_triton_needs_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/clang" if name == "clang" else None)
    monkeypatch.delenv("CC", raising=False)
    assert loss.has_triton()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert not loss.has_triton()


def test_left_to_us_only_gpus_that_can_have_compiled_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiled(device: torch.device, triton: bool, twice: bool = False) -> bool:
        monkeypatch.setattr(loss, "has_triton", lambda: triton)
        options = tiny.settings(trainer__compile="auto", trainer__gradient_checkpointing=twice)
        return loss.should_compile(options.trainer, device)

    assert compiled(CUDA, triton=True)
    assert not compiled(CUDA, triton=False)
    assert not compiled(CUDA, triton=True, twice=True)
    assert not compiled(CPU, triton=True)


@pytest.mark.parametrize("value", ["sometimes", 2])
def test_what_says_neither_yes_nor_no_is_refused(value: object) -> None:
    said = f"^trainer.compile={value}: choose one of auto, true, false$"
    with pytest.raises(UserError, match=said):
        tiny.settings(trainer__compile=value)


def test_layers_that_are_computed_twice_are_not_compiled(data: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not with trainer\.gradient_checkpointing=true"):
        tiny.train(
            tmp_path / "run", data, trainer__compile=True, trainer__gradient_checkpointing=True
        )


@pytest.mark.slow
def test_a_compiled_run_learns_the_same(data: Prepared, tmp_path: Path) -> None:
    """Without dropout, which compiled draws other numbers; dev perplexity and names of weights."""
    still = {f"model__{which}dropout": 0.0 for which in ("", "attention_", "feedforward_")}
    found = {}
    for compiled in (False, True):
        place = tmp_path / f"{compiled}"
        torch._dynamo.reset()
        tiny.train(place, data, trainer__max_steps=6, trainer__compile=compiled, **still)
        if compiled:  # to be gone on with
            assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
            tiny.train(place, data, trainer__max_steps=8, trainer__compile=True, **still)
        found[compiled] = [line["loss"] for line in tiny.lines(place, "train")]
    first = len(found[False])
    assert first
    torch.testing.assert_close(found[True][:first], found[False], rtol=1e-4, atol=1e-4)


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
