"""Kernels serve training only where they compute what the formulas do: trainer.kernels."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.errors import UserError
from nmt.kernels import choice, relative, selftest
from tests.kernels import by_formulas
from tests.training import tiny

CPU = torch.device("cpu")
Loss = Callable[..., tuple[Tensor, Tensor]]


def smoothed_(
    logits: Tensor, bias: Tensor, target: Tensor, vocab: int, smoothing: float
) -> tuple[Tensor, Tensor]:
    """As the kernel, by formulas."""
    x = (logits.float() + bias)[:, :vocab].requires_grad_()
    loss = F.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
    logits[:, :vocab] = torch.autograd.grad(loss.sum(), x)[0]
    return loss.detach(), F.cross_entropy(x, target, reduction="none").detach()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Formulas in place of what Triton launches."""
    monkeypatch.setattr(relative, "_forward", by_formulas.forward)
    monkeypatch.setattr(relative, "_backward", by_formulas.backward)
    monkeypatch.setattr(selftest, "smoothed_", smoothed_)
    yield monkeypatch
    choice.verified.clear()


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_kernels_that_equal_the_formulas_serve_in_the_format_compared(
    precision: str, here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        selftest.serve(True, CPU, precision, 32)
        assert not torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
    assert torch.equal(torch.rand(3), expected)
    where = "cpu", torch.bfloat16 if precision == "bfloat16" else torch.float32
    kernels = [choice.LOSS] if precision == "float32" else [choice.LOSS, choice.RELATIVE]
    assert choice.verified == dict.fromkeys(kernels, where) and not caplog.records
    selftest.serve(False, CPU, precision, 32)
    assert not choice.verified


def wrong_gradient(*given: Any) -> tuple[Tensor | None, ...]:
    by_q, by_k, by_v, by_t = by_formulas.backward(*given)
    return by_q, by_k, by_v * 1.2, by_t


def wrong_dropout(inputs: Any, *given: Any) -> tuple[Tensor | None, ...]:
    return by_formulas.backward(inputs._replace(seed=inputs.seed + 1), *given)


def raises(*given: Any, **more: Any) -> tuple[Tensor, ...]:
    raise RuntimeError("cannot compile this")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (wrong_gradient, "it differs by "),
        (wrong_dropout, "it differs by "),
        (raises, "RuntimeError at test_kernel_selftest.py"),
    ],
)
def test_a_kernel_that_differs_or_fails_gives_way_to_the_formulas(
    wrong: Any, said: str, here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.setattr(relative, "_backward", wrong)
    selftest.serve(True, CPU, "bfloat16", 32)
    assert set(choice.verified) == {choice.LOSS}
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith("trainer.kernels: formulas replace the kernel of relative attention: ")
    assert said in line and "\n" not in line


def test_a_loss_that_is_not_finite_gives_way(
    here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here.setattr(selftest, "smoothed_", lambda *given: [x * torch.nan for x in smoothed_(*given)])
    selftest.serve(True, CPU, "bfloat16", 32)
    assert set(choice.verified) == {choice.RELATIVE} and "the loss: it differs" in caplog.text


def test_training_asks_for_them(
    tmp_path: Path, here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a kernel that works it says so in a line, and trains by formulas."""
    asked: list[Any] = []
    serve = selftest.serve

    def asking(*given: Any) -> None:
        asked.append(given)
        serve(*given)

    here.setattr(selftest, "serve", asking)
    here.setattr(selftest, "smoothed_", raises)
    data = tiny.prepared(tmp_path / "data")
    for wanted in (False, True):
        run = tmp_path / f"{wanted}"
        tiny.train(run, data, trainer__max_steps=1, trainer__kernels=wanted)
        assert caplog.text.count("trainer.kernels") == int(wanted)
    assert [given[:3] for given in asked] == [(False, CPU, "float32"), (True, CPU, "float32")]


def test_a_kernel_that_fails_on_another_rank_serves_on_none(
    here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def all_reduce(failed: Tensor, op: str) -> Tensor:
        assert failed.tolist() == [0, 0] and op == "MAX"
        return torch.tensor([0, 1])

    selftest.serve(True, CPU, "bfloat16", 32, all_reduce)
    assert set(choice.verified) == {choice.LOSS}
    assert "kernel of relative attention: it failed on another rank" in caplog.text


def test_each_compilation_for_the_heads_of_the_model_is_compared(
    here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program is compiled for a head's width, for sizes of blocks, and for a mask or none."""
    compiled = set()

    def forward(inputs: Any, *given: Any) -> Any:
        n, width = inputs.q.shape[2:]
        compiled.add((width, choice.block(n, width), inputs.allowed is not None))
        return by_formulas.forward(inputs, *given)

    here.setattr(relative, "_forward", forward)
    for width in choice.WIDTHS:
        selftest.serve(True, CPU, "tf32", width)
        assert set(choice.verified) == {choice.LOSS, choice.RELATIVE}
        blocks = {choice.block(n, width) for n in range(1, 200)}
        assert compiled == {(width, size, mask) for size in blocks for mask in (False, True)}
        compiled.clear()
    selftest.serve(True, CPU, "tf32", 48)
    assert set(choice.verified) == {choice.LOSS} and not compiled and not caplog.records


@pytest.mark.parametrize("sticky", [True, False])
def test_a_gpu_that_a_kernel_left_useless_ends_training(
    sticky: bool, here: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def synchronize(device: torch.device) -> None:
        assert device == gpu
        if sticky:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    gpu = torch.device("cuda", 0)
    here.setattr(torch.cuda, "synchronize", synchronize)
    here.setattr(torch.random, "fork_rng", lambda gpus: nullcontext())
    here.setattr(torch, "manual_seed", lambda seed: None)
    for name in ("loss_difference", "relative_difference"):
        here.setattr(selftest, name, raises)
    with pytest.raises(UserError, match=r"set trainer\.kernels=false") if sticky else nullcontext():
        selftest.serve(True, gpu, "bfloat16", 64)
    assert not choice.verified and len(caplog.records) == (0 if sticky else 2)
