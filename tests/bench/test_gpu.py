"""The parts of --gpu share its time."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from scripts.bench import gpu
from scripts.bench.__main__ import GPU_PARTS, parse_arguments
from scripts.bench.session import Session
from scripts.bench.table import BenchPart

ALL = 60 * gpu.MINUTES


def take(name: str, had: dict[str, float]) -> Callable[[Session], BenchPart]:
    def part(session: Session) -> BenchPart:
        had[name] = session.ends - monotonic()
        return BenchPart(name, name, (), [], [], {})

    return part


@pytest.mark.parametrize("chosen", [GPU_PARTS, ["sizes"], ["lengths", "correctness"]])
def test_time_that_a_part_does_not_need_is_for_those_after_it(
    chosen: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(parse_arguments(["--gpu"]), tmp_path, "cpu")
    had: dict[str, float] = {}
    for name in gpu.PARTS:
        monkeypatch.setitem(gpu.PARTS, name, take(name, had))
    names = [part.name for part in gpu.measure_parts(session, chosen)]
    assert names == [name for name in GPU_PARTS if name in chosen]
    for left, name in zip(range(len(names), 0, -1), names, strict=True):
        assert had[name] == pytest.approx(ALL / left, abs=1)
