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


@pytest.fixture
def bench(tmp_path: Path) -> Session:
    words = ["--quick", "--rounds", "3", "--threads", "1", "--peers", "none"]
    options = parse_arguments([*words, "--precision", "float32", "--model", "tiny"])
    return Session(options, tmp_path, "cpu")


def test_time_that_a_part_does_not_need_is_for_those_after_it(bench: Session) -> None:
    shares = bench.within(ALL).shares(4)
    first = next(shares)
    assert first.ends - monotonic() == pytest.approx(ALL / 4, abs=1)
    for parts in (3, 2, 1):  # the time of the first is not gone
        assert next(shares).ends - monotonic() == pytest.approx(ALL / parts, abs=1)


def take(name: str, had: dict[str, float]) -> Callable[[Session], BenchPart]:
    def part(session: Session) -> BenchPart:
        had[name] = session.ends - monotonic()
        return BenchPart(name, name, (), [], [], {})

    return part


@pytest.mark.parametrize("chosen", [GPU_PARTS, ["sizes"], ["lengths", "correctness"]])
def test_chosen_parts_share_the_time(
    chosen: list[str], bench: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    had: dict[str, float] = {}
    for name in gpu.PARTS:
        monkeypatch.setitem(gpu.PARTS, name, take(name, had))
    names = [part.name for part in gpu.parts(bench, chosen)]
    assert names == [name for name in GPU_PARTS if name in chosen]
    assert had[names[0]] == pytest.approx(ALL / len(names), abs=1)
    assert had[names[-1]] == pytest.approx(ALL, abs=1)
