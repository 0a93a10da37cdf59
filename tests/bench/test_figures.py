"""What is made of the rounds: tables, exponents, pictures, kinds of work."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scripts.bench import encodings, matmul_worker
from scripts.bench.growth import GrowthCurve, draw, exponent
from scripts.bench.machine import describe, text
from scripts.bench.profile_worker import kind_of
from scripts.bench.rounds import Measurement
from scripts.bench.table import aligned, figure, ranged


def test_columns_stand_below_each_other() -> None:
    assert aligned([["", "x", ""], ["abc", "1.5", "why"], ["d", "22.0", ""]]) == [
        "        x",
        "abc   1.5  why",
        "d    22.0",
    ]
    assert figure(None, "{:.1f}") == ranged([]) == "-"
    assert ranged([3, 1, 2]) == "2 [1, 3]"


def test_exponents_of_known_powers() -> None:
    assert exponent([(x, 5 * x**1.5) for x in (1, 2, 4, 16)]) == pytest.approx(1.5)
    assert exponent([(x, 7 / x) for x in (1, 2, 4)]) == pytest.approx(-1)
    assert exponent([(1, 1)]) is None


def test_curves_are_drawn(tmp_path: Path) -> None:
    entries = [
        Measurement(str(x), rounds=[{"units": 1, "seconds": x / 10, "peak_bytes": x * 10**8}])
        for x in (1, 2, 4)
    ]
    dead = Measurement("8", failed="out of memory")
    curve = GrowthCurve("step, length", "pieces", "1", [1, 2, 4, 8], [*entries, dead])
    assert [x for x, *_ in curve.measured] == [1, 2, 4]
    paths = draw([curve], tmp_path / "new")
    assert [Path(path).name for path in paths] == ["growth.svg", "growth.png"]
    assert Path(paths[1]).read_bytes().startswith(b"\x89PNG")
    assert "exponent 1.00" in Path(paths[0]).read_text()


def chain(*names: str, shapes: list[list[int]] | None = None) -> list[Any]:
    return [SimpleNamespace(name=name, input_shapes=shapes) for name in names]


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        (chain("aten::addmm", "aten::linear", shapes=[[9, 4], [4, 8]]), "linear layers"),
        (chain("aten::addmm", "aten::linear", shapes=[[9, 4], [4, 77]]), "vocabulary and loss"),
        (chain("aten::mul_", "Optimizer.step#AdamW.step", shapes=[[77, 4]]), "optimiser"),
        (chain("aten::_fused_adamw_", shapes=[[77, 4]]), "optimiser"),
        (chain("aten::linalg_vector_norm", shapes=[[77, 4]]), "optimiser"),
        (chain("aten::bmm", shapes=[[8, 4, 4], [8, 4, 4]]), "attention"),
        (chain("aten::native_dropout"), "dropout"),
        (chain("aten::native_layer_norm_backward"), "norms"),
        (chain("aten::index_add_", "aten::embedding_dense_backward"), "embedding"),
        (chain("aten::mul", "NllLossBackward0"), "vocabulary and loss"),
        (chain("aten::add"), "other"),
    ],
)
def test_kinds_of_work(events: list[Any], kind: str) -> None:
    assert kind_of(events, vocab=77) == kind


def test_the_peak_counts_what_it_multiplied() -> None:
    product = matmul_worker.measure("float32", "cpu", (32, 64))
    assert product["units"] % (2 * product["square"] ** 3) == 0
    assert product["seconds"] >= matmul_worker.LEAST


def test_the_machine_is_described() -> None:
    machine = describe("cpu", 3)
    assert machine["versions"]["torch"] == torch.__version__
    assert machine["threads"] == 3
    assert f"{machine['cores']} cores, 3 threads" in text(machine)


@pytest.mark.parametrize("gigabytes, choices", [(1, 1), (8, 2), (25, 9), (500, 9)])
def test_as_many_encodings_wait_as_memory_holds(gigabytes: int, choices: int) -> None:
    assert encodings.at_once(gigabytes * 10**9) == choices
