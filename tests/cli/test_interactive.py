"""nmt-translate on a terminal, and on a pipe with decode.window=1: a line at a time."""

import gzip
import os
import pty
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.cli import translate

WINDOW = "decode.window=1"
LINES = [b"w1 w2", b"w3", b"", b"w4 w5 w6"]


class Talk:
    """Writes a line, and reads what comes back, while the command runs."""

    def __init__(self, to_command: int, from_command: int) -> None:
        self.to_command, self.from_command = to_command, from_command
        self.heard: list[bytes] = []
        self.failed = ""

    def lines(self, *lines: bytes) -> None:
        """Say the lines, each after the answer to the one before."""
        for line in lines:
            os.write(self.to_command, line + b"\n")
            if not select.select([self.from_command], [], [], 20)[0]:
                self.failed = f"no answer to {line!r}"
                break
            self.heard.append(os.read(self.from_command, 1000))


def talk(
    patch: pytest.MonkeyPatch,
    model: Path,
    terminal: bool,
    act: Callable[[Talk], None],
    *words: str,
    output: Path | None = None,
    listens: bool = True,
) -> tuple[int, Talk]:
    """The exit code of the command, and what was heard, of `output`, while `act` talked to it.

    `listens`: whether to hear the command to its end.
    """
    writing_end, reading_end = pty.openpty() if terminal else reversed(os.pipe())
    hearing, speaking = os.pipe()
    if output is not None:
        os.close(hearing)
        hearing = os.open(output, os.O_RDONLY | os.O_NONBLOCK)
        words = (*words, "-o", str(output))
    talking = Talk(writing_end, hearing)

    def run() -> None:
        try:
            act(talking)
        finally:
            if terminal:
                os.write(writing_end, b"\x04")  # Ctrl-D
            else:
                os.close(writing_end)

    thread = threading.Thread(target=run)
    with os.fdopen(reading_end, "r") as stdin, os.fdopen(speaking, "w") as stdout:
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        thread.start()
        code = translate.main([str(model), *words])
        thread.join()
    if listens:
        with os.fdopen(hearing, "rb") as rest:
            talking.heard.append(rest.read())
    if terminal:
        os.close(writing_end)
    return code, talking


@pytest.mark.parametrize("terminal", [True, False])
def test_each_line_is_answered_before_the_next_is_written(
    terminal: bool,
    copying: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ["decode.window=2000"] if terminal else [WINDOW]
    code, talking = talk(monkeypatch, copying, terminal, lambda one: one.lines(*LINES), *words)
    assert (code, talking.failed) == (0, "")
    assert talking.heard == [*(line + b"\n" for line in LINES), b""]
    err = capfd.readouterr().err
    assert ("> " in err) == terminal, err


@pytest.mark.parametrize(
    "content", [("w1 w2\nw3\n" * 9).encode("utf-16-le"), gzip.compress(b"w1 w2\n" * 50, mtime=0)]
)
def test_a_pipe_that_gives_forty_bytes_at_first_is_refused(
    content: bytes,
    copying: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def act(one: Talk) -> None:
        os.write(one.to_command, content[:40])
        time.sleep(0.1)
        os.write(one.to_command, content[40:])

    code, talking = talk(monkeypatch, copying, False, act)
    assert (code, talking.heard) == (65, [b""])
    err = capfd.readouterr().err
    assert "stdin: is UTF-16" in err or "stdin: is compressed by gzip" in err, err


def test_a_pipe_that_is_named_answers_as_stdout_does(
    copying: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "out")
    code, talking = talk(
        monkeypatch, copying, False, lambda one: one.lines(*LINES), WINDOW, output=tmp_path / "out"
    )
    assert (code, talking.failed) == (0, "")
    assert talking.heard == [*(line + b"\n" for line in LINES), b""]


def test_a_reader_may_leave(copying: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(one: Talk) -> None:
        one.lines(LINES[0])
        os.close(one.from_command)
        os.write(one.to_command, b"w1\n" * 20)

    assert talk(monkeypatch, copying, False, leave, WINDOW, listens=False)[0] == 141
