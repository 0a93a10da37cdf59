"""Translating by several processes: the same bytes, and nothing lost or left behind."""

import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

import nmt
from nmt.cli import output as writing
from nmt.system.pool import can_fork
from tests.cli.conftest import LINES, WHOLE_WORDS, Run, at_each_batch

pytestmark = pytest.mark.skipif(not can_fork(), reason="forks are for Linux")

TWO = ("--workers", "2")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """An entry for each worker that was begun."""
    seen, fork = list[int](), os.fork

    def spy() -> int:
        seen.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", spy)
    yield seen
    assert not multiprocessing.active_children()


def test_the_bytes_are_those_of_one_process(
    nmt_translate: Run, text: Path, begun: list[int]
) -> None:
    words = ("--json", "--n-best=2")
    code, out, err = nmt_translate(str(text), *words)
    assert (code, len(begun)) == (0, 0)
    assert nmt_translate(str(text), *words, *TWO) == (0, out, err)
    assert nmt_translate(*words, *TWO, stdin=text.read_bytes()) == (0, out, err)
    output = text.with_name("out")
    assert nmt_translate(str(text), *words, "-o", str(output), "--workers=3") == (0, b"", err)
    assert (output.read_bytes(), len(begun)) == (out, 2 + 2 + 3)
    assert "cut at the limit of their length: 2 (first: line 2; longest" in err


def wait_for_six_lines(record: Path) -> None:
    while json.loads(record.read_bytes())["progress"]["lines"] < 6:
        time.sleep(0.01)


def interrupt(record: Path) -> None:
    wait_for_six_lines(record)
    os.kill(os.getppid(), signal.SIGINT)
    signal.pause()  # until the parent ends it


def kill(record: Path) -> None:
    wait_for_six_lines(record)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("act", "found", "last_line"),
    [
        (interrupt, 130, "nmt: interrupted\n"),
        (kill, 71, "nmt: --workers 2: a worker was killed, as the system does for want of memory; "
                   "give fewer, or a smaller decode.batch_tokens\n"),
    ],
)  # fmt: skip
def test_what_was_done_is_kept_and_the_same_command_goes_on(
    nmt_translate: Run,
    text: Path,
    begun: list[int],
    act: Callable[[Path], None],
    found: int,
    last_line: str,
) -> None:
    whole, output = nmt_translate(str(text), "--scores")[1:], text.with_name("out")
    eleventh = WHOLE_WORDS.ids(LINES[10])  # as long as any
    part, record = output.with_name("out.part"), output.with_name("out.part.json")

    def look(ids: Tensor) -> None:
        if eleventh in ids.tolist():
            act(record)

    # A shell that starts the tests in its background has them ignore a Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writing, "EVERY", 0)
            with at_each_batch(look):
                code, _, err = nmt_translate(str(text), "--scores", "-o", str(output), *TWO)
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == found
    last = err.splitlines(keepends=True)[-1]
    assert last == last_line
    done = json.loads(record.read_bytes())["progress"]["lines"]
    assert done in (6, 9)
    written = part.read_bytes().count(b"\n")
    assert written == done or (found == 130 and written == 9)  # interrupted before it was recorded
    assert f"keeps the {done} lines done so far" in err
    code, out, err = nmt_translate(str(text), "--scores", "-o", str(output), *TWO)
    assert (code, out) == (0, b"")
    assert (output.read_bytes(), err.splitlines()[-1:]) == (whole[0], whole[1].splitlines())
    assert not part.exists() and not record.exists()
    assert len(begun) == 2 + 2


def test_the_api_translates_by_workers(copying: Path, begun: list[int]) -> None:
    model = nmt.load(copying)
    alone = nmt.n_best(model, LINES, 2, workers=1)
    assert nmt.n_best(model, LINES, 2, workers=2) == alone
    assert nmt.translate(model, LINES, workers=2) == [best.text for best, *_ in alone]
    assert len(begun) == 2 + 2
    assert nmt.n_best(model, LINES, 2) == alone
    assert len(begun) == 2 + 2  # a small text
