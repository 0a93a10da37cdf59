"""Records of a run that are damaged: the resumed run ends in the same weights and loses no line."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training.reports import WARNED, read_metrics
from tests.training import tiny
from tests.training.damage import Damage, missing

Lines = list[bytes]
WEIGHTS = "checkpoints/step-00000006/model.safetensors"


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe precious \x00 {\n")


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "precious").write_bytes(b"precious")


def dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("no/such/place")


def linked(path: Path) -> None:
    """It has been moved to another disk."""
    shutil.move(path, path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def read_only(path: Path) -> None:
    path.touch()
    path.chmod(0o444)


def of_lines(change: Callable[[Lines], Lines]) -> Damage:
    """A change of the lines of metrics.jsonl: train 1, train 2, dev 2, train 3, train 4, dev 4."""

    def damage(path: Path) -> None:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(True))))

    return damage


def unreadable(lines: Lines) -> Lines:
    """One of a thousand digits, one whose step is text, a huge one, later ones, and a torn one."""
    first, *rest, last = lines
    digits = first.replace(b'"step": 1', b'"step": 1' + b"0" * 1000)
    text = first.replace(b'"step": 1', b'"step": "1"')
    later = last.replace(b'"step": 4', b'"step": 5')
    return [
        digits,
        text,
        b"[" * 10_000_000 + b"\n",
        *rest,
        last,
        later,
        b'{"kind": "train", "step": 5',
    ]


METRICS: dict[str, Damage] = {
    "missing": missing,
    "lines": of_lines(unreadable),
    "steps out of order": of_lines(lambda lines: [*lines[::-1], lines[-1][:20]]),
    "a link": linked,
}
RECORDS = ("metrics.jsonl", "train.log", "best", ".nmt-holder")


class Stopped(NamedTuple):
    """A run of four updates, and what six make of it."""

    run: Path
    weights: str  # SHA-256
    lines: list[dict[str, Any]]  # those of steps 5 and 6


@pytest.fixture(scope="module")
def stopped(data: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    root = tmp_path_factory.mktemp("stopped")
    for name, last in (("run", 4), ("whole", 6)):
        tiny.train(root / name, data, trainer__max_steps=last, trainer__log_every=1)
    lines = [line for line in tiny.reports(root / "whole") if line["step"] > 4]
    return Stopped(root / "run", tiny.digest(root / "whole" / WEIGHTS), lines)


def resume(run: Path, data: Prepared) -> None:
    WARNED.clear()  # as in a process of its own
    tiny.train(run, data, trainer__max_steps=6, trainer__log_every=1)


@pytest.fixture
def run(stopped: Stopped, tmp_path: Path) -> Path:
    return shutil.copytree(stopped.run, tmp_path / "run")


@pytest.mark.parametrize("kind", METRICS)
def test_lines_that_can_be_read_stay_and_none_comes_twice(
    kind: str, run: Path, stopped: Stopped, data: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    path = run / "metrics.jsonl"
    METRICS[kind](path)
    kept = [line for line in read_metrics(path) if line["step"] <= 4]
    resume(run, data)
    assert tiny.digest(run / WEIGHTS) == stopped.weights and f"{run}/" not in caplog.text
    assert tiny.without_clocks(read_metrics(path)) == tiny.without_clocks(kept) + stopped.lines


@pytest.mark.parametrize("damage", [missing, garbage, linked])
def test_damaged_records_are_written_anew(
    damage: Damage, run: Path, stopped: Stopped, data: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("best", "train.log", *([".nmt-lock"] if damage is not linked else [])):
        damage(run / name)
    garbage(run / ".nmt-holder")
    with caplog.at_level(logging.INFO, "nmt"):
        resume(run, data)
    assert tiny.digest(run / WEIGHTS) == stopped.weights and f"{run}/" not in caplog.text
    assert (run / "best").read_bytes() == b"step-00000006\n"
    assert b"step 6/6" in (run / "train.log").read_bytes()


@pytest.mark.parametrize("damage", [directory, dangling, read_only])
def test_what_is_in_the_place_of_a_record_costs_a_line(
    damage: Damage, run: Path, stopped: Stopped, data: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    if damage is read_only and os.getuid() == 0:
        pytest.skip("root may write everywhere")
    names = RECORDS if damage is directory else RECORDS[:2]  # the others are replaced
    for name in names:
        damage(run / name)
    resume(run, data)
    assert tiny.digest(run / WEIGHTS) == stopped.weights
    about = [line.partition(": ")[0] for line in caplog.messages if f"{run}/" in line]
    assert sorted(about) == sorted(str(run / name) for name in names)


@pytest.mark.parametrize("damage", [directory, dangling])
def test_a_lock_that_cannot_be_had_is_refused(damage: Damage, run: Path, data: Prepared) -> None:
    damage(run / ".nmt-lock")
    with pytest.raises(UserError, match=f"^{run}: ") as error:
        resume(run, data)
    assert error.value.code == Exit.CANT_CREATE
