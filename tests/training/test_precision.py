"""What trainer.precision and trainer.deterministic mean on a device, and what a run remembers."""

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training import reports
from nmt.training.distributed import World
from tests.training import tiny

CUDA = torch.device("cuda", 0)
STEPS, EVERY = 100, 25
RATE = 0.002  # at 0.01, float32 itself strays by 3 % when weights begin a ten-thousandth apart


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Let torch speak of a GPU that has units for bfloat16, or none."""

    def have(units: bool) -> None:
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: units)

    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    return have


def test_a_gpu_without_units_is_refused_or_computes_in_float32(
    gpu: Callable[[bool], None], caplog: pytest.LogCaptureFixture
) -> None:
    def chosen(precision: str) -> str:
        return World().number_format(tiny.settings(trainer__precision=precision).trainer, CUDA)

    gpu(True)
    formats = {"bfloat16": "bfloat16", "tf32": "tf32", "auto": "bfloat16", "float32": "float32"}
    assert {precision: chosen(precision) for precision in formats} == formats
    assert not caplog.text
    gpu(False)
    assert chosen("auto") == chosen("float32") == "float32"
    assert "no units for bfloat16: float32 is used" in caplog.text
    for precision in ("bfloat16", "tf32"):
        told = f"trainer.precision={precision}: Tesla T4 has no"
        with pytest.raises(UserError, match=told) as error:
            chosen(precision)
        assert error.value.code == Exit.USAGE


def test_tf32_is_refused_on_a_cpu(data: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.precision=tf32: for GPUs only") as error:
        tiny.train(tmp_path / "run", data, trainer__precision="tf32")
    assert error.value.code == Exit.USAGE


def test_what_cannot_be_repeated_is_named(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(optimizer: object) -> None:
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but")

    tiny.at_update(monkeypatch, 1, fails)
    with pytest.raises(UserError, match="deterministic=true: cumsum_cuda_kernel") as error:
        tiny.train(tmp_path / "run", data, trainer__deterministic=True)
    assert error.value.code == Exit.USAGE


@pytest.mark.usefixtures("gpu")
def test_resuming_on_a_gpu_promises_no_more_than_it_can(caplog: pytest.LogCaptureFixture) -> None:
    options = [tiny.settings(trainer__deterministic=exact).trainer for exact in (True, False)]
    exact, loose = (reports.describe_environment(CUDA, "tf32", each, 1) for each in options)
    assert (exact["device"], exact["cuda"], exact["cudnn"]) == ("Tesla T4", "13.0", "91900")
    with caplog.at_level(logging.WARNING):
        reports.warn_of_changes(exact, exact)
        assert not caplog.text
        reports.warn_of_changes(loose, loose)
        assert "sums on a GPU have no fixed order without trainer.deterministic" in caplog.text
        caplog.clear()
        reports.warn_of_changes({**exact, "cuda": "12.9"}, exact)
        assert "not bit-identical" in caplog.text and "cuda 12.9 -> 13.0" in caplog.text


def test_a_run_that_goes_on_by_another_processor_says_so(
    data: Prepared, tmp_path: Path, pretend: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    options = {"trainer__precision": "bfloat16", "trainer__max_epochs": None}
    pretend(trains_in_bfloat16=True)
    for steps in (1, 2):
        tiny.train(tmp_path / "run", data, **options, trainer__max_steps=steps)
    assert "not bit-identical" not in caplog.text and "float32 is used" not in caplog.text
    pretend(trains_in_bfloat16=False, processor="another")
    tiny.train(tmp_path / "run", data, **options, trainer__max_steps=3)
    assert "not faster than float32 on this CPU: float32 is used" in caplog.text
    assert "not bit-identical to a run without a stop: format bfloat16 -> float32" in caplog.text
    assert "-> another" in caplog.text


@pytest.mark.slow
def test_bfloat16_has_the_losses_of_float32(
    data: Prepared, tmp_path: Path, pretend: Callable[..., None]
) -> None:
    pretend(trains_in_bfloat16=True)  # here as anywhere
    found = {}
    for precision in ("float32", "bfloat16"):
        run = tmp_path / precision
        tiny.train(
            run, data, encoding={"relative": {"tau": 4}}, trainer__precision=precision,
            trainer__max_epochs=None, trainer__max_steps=STEPS, trainer__log_every=EVERY,
            trainer__batch_tokens=640, optim__patience=100, optim__lr=RATE,
        )  # fmt: skip
        found[precision] = np.array([line["loss"] for line in tiny.lines(run, "train")])
    exact, lower = found.values()
    assert len(exact) == STEPS // EVERY and exact[-1] < exact[0]
    assert np.abs(lower / exact - 1).max() < 0.01
    assert (lower != exact).any()  # else nothing was computed in bfloat16
