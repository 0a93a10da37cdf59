"""A preparation that is stopped, wherever, goes on there, to the same bytes, and leaves nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt import config
from nmt.data import prepare as prepared
from nmt.data.preparation import scan, steps
from nmt.data.preparation.clean import Cleaning
from nmt.data.preparation.number import Numbering
from nmt.data.prepare import prepare
from nmt.errors import UserError
from nmt.storage import atomic
from tests.data.test_prepare import BPE, TRAIN, UNIGRAM, cached, contents, corpus
from tests.pages import ROOT


@pytest.fixture(autouse=True)
def chunks_of_seven_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", 7)


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, stop: int = 0) -> list[int]:
    """Count the calls of a function; the call of number `stop` is interrupted."""
    function: Callable[..., Any] = getattr(module, name)
    calls: list[int] = []

    def watched(*words: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return function(*words)

    monkeypatch.setattr(module, name, watched)
    return calls


def learner(segmenter: config.BpeLearning | config.UnigramLearning) -> str:
    return "learn_bpe_sides" if segmenter is BPE else "learn_unigram_sides"


# where, at which call, chunks (6 of train, 1 of dev) and learners that are left for the next try
STOPS = [
    (Cleaning, "_write", 4, 4, 1),
    (Cleaning, "_write", 7, 1, 1),
    (steps, "learn", 1, 0, 1),
    (Numbering, "number", 1, 0, 0),
    (Numbering, "number", 7, 0, 0),
    (prepared, "_facts", 1, 0, 0),  # when all else is written
]


@pytest.mark.parametrize(("module", "name", "stop", "chunks", "learners"), STOPS)
@pytest.mark.parametrize("segmenter", [BPE, UNIGRAM], ids=["bpe", "unigram"])
def test_it_goes_on_where_it_was_stopped(
    segmenter: config.BpeLearning | config.UnigramLearning,
    module: Any,
    name: str,
    stop: int,
    chunks: int,
    learners: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = corpus(tmp_path)
    whole = prepare(replace(data, cache=str(tmp_path / "whole")), segmenter)
    with monkeypatch.context() as patch:
        counted(patch, module, learner(segmenter) if name == "learn" else name, stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, segmenter)
    again = counted(monkeypatch, Cleaning, "_write")
    learned = counted(monkeypatch, steps, learner(segmenter))
    assert contents(prepare(data, segmenter)) == contents(whole)
    assert (len(again), len(learned)) == (chunks, learners)
    assert cached(data) == [whole.path.name]


PATIENCE = 60.0  # seconds
PARTS = ["train-000001/source", "train-000002/manifest.json", "segmenters/source.json"]


@pytest.mark.parametrize("what", PARTS)
def test_parts_that_are_damaged_are_made_anew(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path)
    whole = prepare(replace(data, cache=str(tmp_path / "whole")), BPE)
    with monkeypatch.context() as patch:
        counted(patch, Numbering, "number", 3)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, BPE)
    (path,) = Path(data.cache).glob(f"*/{what}")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    again = counted(monkeypatch, Cleaning, "_write")
    assert contents(prepare(data, BPE)) == contents(whole)
    assert len(again) == (0 if "segmenters" in what else 1)


def test_other_inputs_take_no_part_and_what_is_old_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path)
    with monkeypatch.context() as patch:
        counted(patch, Numbering, "number", 3)
        with pytest.raises(KeyboardInterrupt):
            prepare(data, BPE)
    (stopped,) = (Path(data.cache) / name for name in cached(data))
    other = prepare(replace(data, max_length=19), BPE).path.name
    assert cached(data) == [stopped.name, other], "it may go on later"
    with monkeypatch.context() as patch:
        patch.setattr(scan, "CHUNK", 8)  # as another program might
        again = counted(patch, Cleaning, "_write")
        prepare(data, BPE)
    assert len(again) == 6 and len(cached(data)) == 2
    stray = Path(data.cache) / stopped.name
    (stray / "part").mkdir(parents=True)
    (stray / "part/manifest.json").touch()
    os.utime(stray, (0, 0))
    prepare(replace(data, max_length=18), BPE)
    assert not stray.exists()


def test_bad_text_leaves_nothing(tmp_path: Path) -> None:
    train = [*TRAIN, *[("x", "y")] * 20]
    data = corpus(tmp_path, train)
    with Path(data.train_source).open("rb+") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\xff")
    with pytest.raises(UserError, match="begins no UTF-8 character"):
        prepare(data, BPE)
    assert cached(data) == []


KILLED = """
import os, signal
from pathlib import Path
from nmt.data.preparation import scan, steps
from nmt.data import prepare as prepared
from nmt.data.prepare import prepare
from tests.data.test_prepare import BPE, corpus
scan.CHUNK = 7
def killed(*words):
    os.kill(os.getpid(), signal.SIGKILL)
steps.learn_bpe_sides = killed
prepare(corpus(Path(), workers=2), BPE)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
def test_a_kill_leaves_parts_and_no_process_or_shared_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, cwd=tmp_path,
        timeout=PATIENCE, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not {path for path in set(Path("/dev/shm").iterdir()) - shared if "sem." in path.name}
    again = counted(monkeypatch, Cleaning, "_write")
    data = replace(corpus(tmp_path), cache=str(tmp_path / "cache"))
    whole = prepare(replace(data, cache=str(tmp_path / "whole")), BPE)
    again.clear()
    assert contents(prepare(data, BPE)) == contents(whole) and again == []
    assert not [name for name in cached(data) if atomic.owner(Path(name))]
