"""`python -m scripts.kernels` as one types it."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from nmt.errors import Exit
from scripts.kernels import grid, where
from scripts.kernels.__main__ import main
from tests.pages import ROOT

TRITON = find_spec("triton") is not None
NEEDS_TRITON = pytest.mark.skipif(not TRITON, reason="triton is not installed")


@pytest.mark.parametrize("words, said", [
    (["fly"], "fly: no such part; there are compare, compile, time"),
    (["compare", "--samples", "0"], "--samples 0: must be at least 1"),
])  # fmt: skip
def test_what_there_is_not(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == Exit.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("part", ["compare", "compile", "time"])
def test_without_triton_it_says_so(
    part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(where, "find_spec", lambda name: None)
    assert main([part]) == Exit.UNAVAILABLE
    assert "triton: not installed" in capsys.readouterr().err


def started(*words: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: Triton decides on import whether it interprets."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "scripts.kernels", *words],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_gpu_compares_shapes_in_bfloat16_alone() -> None:
    shapes = grid.some(500, low=True)
    assert len(set(shapes)) == 500 and all(shape.low for shape in shapes)
    assert not all(shape.low for shape in grid.some(500))
    assert set(grid.some(10**6)) == set(grid.shapes())


@NEEDS_TRITON
@pytest.mark.slow
def test_parts_on_a_cpu() -> None:
    compared = started("compare", "--quick")
    assert compared.returncode == 0 and compared.stdout.count("attention, ") > 5, compared.stderr
    timed = started("time", "--quick")
    assert timed.returncode == 0, timed.stderr
    assert [line.split("  ")[0] for line in timed.stdout.splitlines()[-2:]] == ["loss", "loss"]
    assert started("time").returncode == Exit.NO_MEMORY


@NEEDS_TRITON
@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_compile_for_gpus_that_are_not_there(capability: int) -> None:
    """A100 and H100: a program has at most 163 KB of shared memory, and spills little.

    The loss reads memory by 16 bytes, the most that a thread can.
    """
    made = started("compile", "--quick", "--capability", str(capability))
    assert made.returncode == 0, made.stderr
    rows = [line.split() for line in made.stdout.splitlines()[2:]]
    assert {row[0] for row in rows} == {"forward", "by_query", "by_key", "smoothed"}
    for kernel, *_, registers, spilled, shared, load in rows:
        assert int(load) == 16 or kernel != "smoothed"
        assert int(registers) <= 255 and int(spilled) < 1024 and int(shared) <= 163_000
