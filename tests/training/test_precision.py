"""What trainer.precision and trainer.deterministic mean on a device, and what a run remembers."""

import json
import logging
from pathlib import Path

import pytest
import torch

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training import environment
from nmt.training.distributed import World
from nmt.training.environment import number_format
from nmt.training.trainer import Trainer
from tests.training import tiny

CUDA = torch.device("cuda", 0)


def chosen(precision: str) -> str:
    """The number format of a GPU for trainer.precision."""
    return number_format(tiny.settings(trainer__precision=precision).trainer, CUDA, World())


@pytest.fixture(params=[True, False], ids=["with units", "without units"])
def units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    found: bool = request.param
    monkeypatch.setattr("nmt.training.environment.has_low_precision", lambda device: found)
    monkeypatch.setattr("nmt.training.environment.device_name", lambda device: "Tesla T4")
    return found


@pytest.mark.parametrize("asked", ["bfloat16", "tf32"])
def test_a_gpu_without_units_is_refused(asked: str, units: bool) -> None:
    if units:
        assert chosen(asked) == asked
        return
    with pytest.raises(UserError, match=f"trainer.precision={asked}: Tesla T4 has no") as error:
        chosen(asked)
    assert error.value.code == Exit.USAGE


def test_auto_takes_what_the_gpu_has(units: bool, caplog: pytest.LogCaptureFixture) -> None:
    found = chosen("auto")
    assert found == ("bfloat16" if units else "float32")
    assert ("no units for bfloat16: float32 is used" in caplog.text) == (not units)


def test_float32_is_float32(units: bool) -> None:
    assert chosen("float32") == "float32"


def test_tf32_is_refused_on_a_cpu(data: Prepared, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trainer\.precision=tf32: for GPUs only") as error:
        tiny.train(tmp_path / "run", data, trainer__precision="tf32")
    assert error.value.code == Exit.USAGE


def test_what_cannot_be_repeated_is_named(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Trainer, signal: int) -> int:
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation, but")

    monkeypatch.setattr(Trainer, "update", fails)
    with pytest.raises(UserError, match="deterministic=true: cumsum_cuda_kernel") as error:
        tiny.train(tmp_path / "run", data, trainer__deterministic=True)
    assert error.value.code == Exit.USAGE


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.training.environment.device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)


@pytest.mark.usefixtures("gpu")
def test_of_a_gpu_its_libraries_are_remembered() -> None:
    found = environment.describe(CUDA, "tf32", deterministic=True, compiled=False, workers=1)
    assert (found["device"], found["format"]) == ("NVIDIA H100", "tf32")
    assert (found["cuda"], found["cudnn"]) == ("13.0", "91900")
    assert found["deterministic"] == "yes"
    assert json.loads(json.dumps(found)) == found


@pytest.mark.usefixtures("gpu")
def test_resuming_on_a_gpu_promises_no_more_than_it_can(caplog: pytest.LogCaptureFixture) -> None:
    exact, loose = (environment.describe(CUDA, "tf32", exact, False, 1) for exact in (True, False))
    with caplog.at_level(logging.WARNING):
        environment.warn_of_changes(exact, exact)
        assert not caplog.text
        environment.warn_of_changes(loose, loose)
        assert "sums on a GPU have no fixed order without trainer.deterministic" in caplog.text
        caplog.clear()
        environment.warn_of_changes({**exact, "cuda": "12.9"}, exact)
        assert "not bit-identical" in caplog.text and "cuda 12.9 -> 13.0" in caplog.text
