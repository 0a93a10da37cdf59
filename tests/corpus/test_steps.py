"""A preparation that is stopped, wherever, leaves nothing, and begins again."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nmt.corpus import learn, scan
from nmt.corpus.prepare import prepare
from nmt.system import atomic
from tests.corpus.test_prepare import BPE, cached, contents, corpus
from tests.pages import ROOT


@pytest.fixture(autouse=True)
def chunks_of_seven_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "CHUNK", 7)


@pytest.mark.parametrize("frequent", [0, 2])
def test_words_whose_pieces_are_known_beforehand_get_the_same_ids(
    frequent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = corpus(tmp_path)
    whole = prepare(replace(data, cache=str(tmp_path / "whole")), BPE)
    monkeypatch.setattr(learn, "FREQUENT", frequent)
    made = prepare(data, BPE)
    assert contents(made) == contents(whole)
    for number in range(len(made.train)):
        source, target = made.train.pair(number)
        assert made.source.ids(made.source.text(source)) == source.tolist()
        assert made.target.ids(made.target.text(target)) == target.tolist()


KILLED = """
import os, signal
from pathlib import Path
from nmt.corpus import scan, steps
from nmt.corpus.prepare import prepare
from tests.corpus.test_prepare import BPE, corpus
scan.CHUNK = 7
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
steps.learn_bpe_sides = killed
prepare(corpus(Path(), workers=2), BPE)
"""
PATIENCE = 60.0  # seconds


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
def test_what_a_kill_leaves_is_removed(tmp_path: Path) -> None:
    shared = set(Path("/dev/shm").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, cwd=tmp_path,
        timeout=PATIENCE, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not {path for path in set(Path("/dev/shm").iterdir()) - shared if "sem." in path.name}
    data = replace(corpus(tmp_path), cache=str(tmp_path / "cache"))
    (stray,) = cached(data)
    assert atomic.owner_of(Path(stray)) is not None
    assert cached(data) != [prepare(data, BPE).path.name] == cached(data)
