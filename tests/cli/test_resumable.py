"""nmt-translate -o: nothing that was done is lost, mixed or taken for something else."""

import errno
import fcntl
import io
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from torch import Tensor

from nmt import modeldir
from nmt.cli import output as writing
from nmt.cli import translate
from nmt.errors import UserError
from tests.cli.conftest import LINES, Run, at_each_batch


@pytest.fixture(scope="module")
def left(copying: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What an uninterrupted command writes, and what is left of one stopped in its third window."""
    text = tmp_path_factory.mktemp("left") / "in"
    text.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    words = [str(copying), str(text), "--scores", "-o"]
    assert translate.main([*words, str(text.with_name("whole"))]) == 0
    with stop_at(3):
        assert translate.main([*words, str(text.with_name("out"))]) == 130
    files = contents(text.parent)
    assert sorted(files) == ["in", "out.part", "out.part.json", "whole"]
    return files


@pytest.fixture
def whole(left: dict[str, bytes]) -> bytes:
    """What an uninterrupted command writes."""
    return left["whole"]


@pytest.fixture
def stopped(left: dict[str, bytes], text: Path) -> Path:
    """An output whose command was stopped in its third window."""
    for name in ("out.part", "out.part.json"):
        text.with_name(name).write_bytes(left[name])
    return text.with_name("out")


def stop_at(batch: int) -> AbstractContextManager[object]:
    """Ctrl-C when so many batches have been begun."""
    batches = list[Tensor]()

    def count(ids: Tensor) -> None:
        batches.append(ids)
        if len(batches) >= batch:
            raise KeyboardInterrupt

    return at_each_batch(count)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_next_command_goes_on(
    nmt_translate: Run, text: Path, stopped: Path, whole: bytes
) -> None:
    batches = list[Tensor]()
    with at_each_batch(batches.append):
        code, out, err = nmt_translate(str(text), "--scores", "-o", str(stopped))
    assert (code, out) == (0, b"")
    assert "out.part: goes on after 6 lines" in err
    assert "cut at the limit of their length: 2 (first: line 2;" in err  # of both commands
    assert contents(text.parent) == {"in": text.read_bytes(), "out": whole}
    assert sum(map(len, batches)) == len(LINES) - 6


def write_by(patch: pytest.MonkeyPatch, write: Callable[[BinaryIO, bytes], None]) -> None:
    """Have this write what goes to a file that is opened to go on."""

    class Watched(io.BufferedRandom):
        def write(self, data: Any) -> int:
            write(super(), data)  # type: ignore[arg-type]
            return len(data)

    def fdopen(descriptor: int, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if mode == "r+b":
            return Watched(io.FileIO(descriptor, mode))
        return right(descriptor, mode, *rest, **more)

    right = os.fdopen
    patch.setattr(os, "fdopen", fdopen)


def test_a_kill_at_any_moment_costs_no_byte(
    nmt_translate: Run, text: Path, whole: bytes, tmp_path: Path
) -> None:
    """What lies on the disk before and after each step is what a killed process leaves."""
    output, snapshots = text.with_name("out"), tmp_path / "snapshots"
    snapshots.mkdir()
    count = 0

    def snapshot() -> None:
        nonlocal count
        count += 1
        there = snapshots / str(count)
        there.mkdir()
        for path in writing.partial_files(output):
            if path.exists():
                shutil.copy(path, there)

    def replace(old: Path, new: Path) -> None:
        snapshot()
        os_replace(old, new)
        snapshot()

    def write(file: BinaryIO, data: bytes) -> None:
        file.write(data)
        if count % 3:
            file.flush()
        snapshot()

    os_replace = os.replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "EVERY", 0)
        write_by(patch, write)
        patch.setattr(os, "replace", replace)
        assert nmt_translate(str(text), "--scores", "-o", str(output))[0] == 0
    assert output.read_bytes() == whole
    assert count > len(LINES) + 2 * len(LINES) // 3
    resumed = set()
    for there in sorted(snapshots.iterdir(), key=lambda path: int(path.name))[::2]:
        part = there / "out.part"
        if part.exists() and (there / "out.part.json").exists():
            with part.open("ab") as file:
                file.write("-0.1\tw1 h\u00e4".encode()[:-1])  # half a line, half a character
        code, _, err = nmt_translate(str(text), "--scores", "-o", str(there / "out"))
        assert code == 0
        assert contents(there) == {"out": whole}
        resumed |= {err.partition("goes on after ")[2].partition(" ")[0]}
    assert {"", "3", "9", "18"} <= resumed


Change = tuple[bytes, bytes] | None  # what is replaced in a file, and by what; None: the file goes
KEPT = b"", b""
REFUSALS: list[tuple[str, Change, list[str], int, str]] = [
    ("in", KEPT, ["--scores", "decode.alpha=1"], 2, "made with decode.alpha=0.6, now 1.0; give"),
    ("in", KEPT, [], 2, "its 6 lines were made with --scores=True, now False; give another -o"),
    ("in", (b"w3", b"w4"), ["--scores"], 2, "its 6 lines were made with another text; give anoth"),
    ("out.part", (b"\n", b""), ["--scores"], 65, "out.part.json: damaged; remove"),
    ("out.part.json", None, ["--scores"], 73, "for out.part.json is missing; give another -o, or"),
    ("out.part.json", (b"progress", b""), ["--scores"], 65, "out.part.json: damaged; remove"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "words", "code", "message"), REFUSALS)
def test_what_does_not_belong_together_is_refused_and_left_alone(
    nmt_translate: Run, text: Path, stopped: Path,
    name: str, change: Change, words: list[str], code: int, message: str,
) -> None:  # fmt: skip
    path = text.with_name(name)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(*change))
    before = contents(text.parent)
    found, out, err = nmt_translate(str(text), "-o", str(stopped), *words)
    assert (found, out) == (code, b"")
    assert err.startswith(f"nmt: {stopped}.part")
    assert message in err
    assert err.count("\n") == 1
    assert contents(text.parent) == before


def test_another_model_is_refused(
    command: Run, nmt_translate: Run, text: Path, copying: Path, stopped: Path
) -> None:
    before, other = contents(text.parent), text.with_name("model")
    modeldir.save(modeldir.load(copying)._replace(facts={"longest_source": 31}), other)
    code, _, err = command(str(other), str(text), "--scores", "-o", str(stopped))
    assert code == 2
    assert "its 6 lines were made with another model; give another -o, or remove it" in err
    shutil.rmtree(other)
    assert contents(text.parent) == before


def test_files_that_are_read_for_another_use_are_other_files(tmp_path: Path) -> None:
    """Two columns that have changed places."""
    for name in "ab":
        (tmp_path / name).write_text(name)
    one, other = ({"a": str(tmp_path / x), "b": str(tmp_path / y)} for x, y in ("ab", "ba"))
    for inputs in (one, dict([*one.items()][::-1])):  # as typed in another order
        with (
            pytest.raises(KeyboardInterrupt),
            writing.open_output(str(tmp_path / "out"), inputs, {}) as output,
        ):
            assert output.progress.lines == (inputs is not one)
            output.write("x\n")
            output.advance(1, {})
            raise KeyboardInterrupt
    with pytest.raises(UserError), writing.open_output(str(tmp_path / "out"), other, {}):
        pass


def test_a_pipe_begins_again(nmt_translate: Run, text: Path, whole: bytes) -> None:
    output = text.with_name("out")
    words, lines = ("--scores", "-o", str(output)), text.read_bytes()
    with stop_at(3):
        code, _, err = nmt_translate(*words, stdin=lines)
    assert code == 130 and err.count("out.part: keeps the 6 lines done so far\n") == 1
    code, _, err = nmt_translate(*words, stdin=lines)
    assert (code, "goes on" in err) == (0, False)
    assert contents(text.parent) == {"in": lines, "out": whole}


@pytest.mark.parametrize("name", ["in", "out.part"])
def test_an_input_that_would_be_overwritten_is_refused(
    nmt_translate: Run, text: Path, stopped: Path, name: str
) -> None:
    before = contents(text.parent)
    output = text if name == "in" else stopped
    code, _, err = nmt_translate(str(text.with_name(name)), "-o", str(output))
    assert code == 2
    assert err == f"nmt: -o {output}: {name} is an input; give another -o\n"
    assert contents(text.parent) == before
    text.with_name("link").symlink_to(text)
    assert nmt_translate(str(text.with_name("link")), "-o", str(text))[0] == 2


def test_one_process_writes_at_a_time(nmt_translate: Run, text: Path, stopped: Path) -> None:
    before = contents(text.parent)
    with stopped.with_name("out.part").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, _, err = nmt_translate(str(text), "--scores", "-o", str(stopped))
        assert (code, err) == (
            73, f"nmt: {stopped}.part: in use by another process; wait, or give another -o\n"
        )  # fmt: skip
        assert contents(text.parent) == before
    assert nmt_translate(str(text), "--scores", "-o", str(stopped))[0] == 0


@pytest.mark.parametrize("begun_again", [False, True])
def test_a_part_that_its_writer_finishes_before_the_lock_is_left_alone(
    text: Path, monkeypatch: pytest.MonkeyPatch, begun_again: bool
) -> None:
    final, part = text.with_name("out"), text.with_name("out.part")
    part.write_bytes(b"whole\n")
    lock = fcntl.flock

    def finish_and_lock(*arguments: Any) -> None:
        part.rename(final)  # by the process that had the lock until now
        if begun_again:
            part.write_bytes(b"of a third process\n")
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", finish_and_lock)
    with pytest.raises(UserError, match="in use by another process"):
        writing.ResumableOutput(final, {"text": {}})
    assert final.read_bytes() == b"whole\n" and part.exists() == begun_again


def test_a_full_disk_keeps_what_was_done(nmt_translate: Run, text: Path, whole: bytes) -> None:
    output = text.with_name("out")

    written = list[bytes]()

    def full(file: BinaryIO, line: bytes) -> None:
        if len(written) >= 9:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(line)
        file.write(line)

    with pytest.MonkeyPatch.context() as patch:
        write_by(patch, full)
        code, _, err = nmt_translate(str(text), "--scores", "-o", str(output))
    assert code == 74
    assert "out.part: keeps the 9 lines done so far; the same command goes on from there" in err
    assert nmt_translate(str(text), "--scores", "-o", str(output))[0] == 0
    assert output.read_bytes() == whole
