"""Saves that fail at every system call, in the order the disk needs; damage found and set aside."""

import errno
import itertools
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nmt import modeldir
from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.modeldir import WEIGHTS
from nmt.system import atomic
from nmt.system.manifest import VerifiedDirectory
from nmt.training.checkpoint import Checkpoints
from nmt.training.directory import progress
from tests.training import tiny
from tests.training.damage import DAMAGES, Damage, emptied, flipped_bit, missing

STATE = b'{"step": %d, "cost": %s}'
CALLS = ("fsync", "rename", "replace")


def files(step: int, perplexity: float | None = 5.0) -> list[tuple[str, bytes]]:
    state = STATE % (step, json.dumps(perplexity and [perplexity]).encode())
    facts = b'{"step": %d, "longest_source": 9}' % step
    return [(WEIGHTS, b"%d" % step * 400), ("facts.json", facts), ("state.json", state)]


def fresh(run: Path, keep: int = 2) -> Checkpoints:
    run.mkdir(exist_ok=True)
    checkpoints = Checkpoints(run, keep)
    checkpoints.recover()
    return checkpoints


def names(run: Path) -> list[str]:
    return sorted(p.name for p in (run / "checkpoints").iterdir())


def test_the_best_and_the_newest_are_kept_and_known_without_the_pointer(tmp_path: Path) -> None:
    checkpoints = fresh(tmp_path / "run")
    for step, perplexity in ((1, 9.0), (2, 4.0), (3, 6.0), (4, 4.0), (5, 7.0), (6, None)):
        checkpoints.save(step, [perplexity] if perplexity else None, files(step, perplexity))
    kept = [f"step-0000000{step}" for step in (2, 4, 5, 6)]  # the last one without a cost
    assert names(tmp_path / "run") == kept
    for pointer in (b"step-00000002\n", b"step-00000005\n"):
        (tmp_path / "run/best").write_bytes(pointer)
        assert fresh(tmp_path / "run").best == ([4.0], "step-00000002")  # of equals the first
        assert modeldir.locate(tmp_path / "run").name == "step-00000002"


def test_saving_goes_on_beside_checkpoints_that_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def not_empty(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path / "file"))

    run, access, protected = tmp_path / "run", os.access, "step-00000001"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", not_empty)
        patch.setattr("os.access", lambda path, mode: path.name != protected and access(path, mode))
        checkpoints = fresh(run)
        for step in range(1, 7):
            checkpoints.save(step, [9.0 - step], files(step, 9.0 - step))
        assert caplog.text.count(f"{protected}: Permission denied") == 1
        assert caplog.text.count("step-00000002: Directory not empty") == 1
    assert fresh(run).best == ([3.0], "step-00000006")
    assert names(run) == [f"step-0000000{step}" for step in (1, 5, 6)]


def test_a_resumed_run_holds_no_checkpoint_open(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On NFS a file that is mapped into memory cannot be removed."""
    maps, seen = Path("/proc/self/maps"), list[bool]()
    if not maps.exists():
        pytest.skip("the system does not tell what a process maps into its memory")
    tiny.train(tmp_path / "run", data, trainer__max_steps=2)
    run = str(tmp_path / "run")
    tiny.at_update(monkeypatch, 3, lambda optimizer: seen.append(run in maps.read_text()))
    tiny.train(tmp_path / "run", data, trainer__max_steps=4)
    assert seen == [False]


def recorded(patch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Names of the system calls to come, with the file or directory each is about."""
    seen: list[tuple[str, str]] = []

    def note(name: str, real: Any) -> Any:
        def call(what: Any, *rest: Any) -> Any:
            path = Path(f"/proc/self/fd/{what}").readlink() if name == "fsync" else Path(what)
            seen.append((name, (atomic.owner_of(path) or path).name))
            return real(what, *rest)

        return call

    for name in CALLS:
        patch.setattr(os, name, note(name, getattr(os, name)))
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names descriptors through /proc")
def test_data_is_on_the_disk_before_its_name_and_that_before_older_data_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = fresh(tmp_path / "run")
    checkpoints.save(1, [9.0], files(1))
    checkpoints.save(2, [8.0], files(2))
    seen = recorded(monkeypatch)
    checkpoints.save(3, [7.0], files(3))
    files_first, rest = sorted(seen[:4]), seen[4:]
    names = ("facts.json", "manifest.json", WEIGHTS, "state.json")
    assert files_first == [("fsync", name) for name in names]
    assert rest == [
        ("fsync", "step-00000003"),  # still under its temporary name
        ("rename", "step-00000003"),
        ("fsync", "checkpoints"),
        ("fsync", "best"),
        ("replace", "best"),
        ("fsync", "run"),
        ("rename", "step-00000001"),  # to a name that nobody takes for the whole
    ]


class CrashError(OSError):
    """The power goes: nothing after it is done, not even tidying up."""


@pytest.mark.parametrize("tidy", [True, False], ids=["error", "crash"])
def test_a_failure_at_any_system_call_leaves_old_or_new(
    tidy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a mixture, and never a stray after the next start."""
    for k in range(100):
        run = tmp_path / f"run{k}"
        checkpoints = fresh(run)
        for step in (1, 2):
            checkpoints.save(step, [9.0 - step], files(step, 9.0 - step))
        with monkeypatch.context() as patch:
            dead = fail_at(patch, k, tidy)
            try:
                checkpoints.save(3, [6.0], files(3, 6.0))
                failed = False  # nor does it where `best` cannot be written, which is a hint
            except CrashError:
                failed = True
        least = 2
        for _ in range(2):  # before the next start, and after it
            path = modeldir.locate(run)
            VerifiedDirectory(path).verify()
            step = int(path.name[-1])
            assert (
                least <= step <= 3 and dict(files(step))[WEIGHTS] == (path / WEIGHTS).read_bytes()
            )
            saved = Checkpoints(run, 2).recover()
            assert saved is not None and step <= saved.step <= 3
            least = step
        assert not [p for p in run.rglob("*") if atomic.owner_of(p)]
        if not dead:
            assert k > 12 and not failed and step == 3
            return
    raise AssertionError("every save failed")


def fail_at(patch: pytest.MonkeyPatch, k: int, tidy: bool) -> list[bool]:
    """Let the k-th call from now fail; after a crash all later ones fail, rmtree included.

    The list that is returned holds something once it has failed.
    """
    calls = iter(range(1000))
    dead: list[bool] = []

    def failing(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if dead and not tidy:
                raise CrashError(5, "gone")
            if next(calls) == k:
                dead.append(True)
                raise CrashError(28, "No space left on device")
            return real(*args, **kwargs)

        return call

    for name in (*CALLS, "mkdir"):
        patch.setattr(os, name, failing(getattr(os, name)))
    rmtree = shutil.rmtree

    def remove(path: Path, ignore_errors: bool = False) -> None:
        if not dead or tidy:
            failing(rmtree)(path, ignore_errors=ignore_errors)
        elif not ignore_errors:
            raise CrashError(5, "gone")

    patch.setattr(shutil, "rmtree", remove)
    return dead


KINDS = [*zip(DAMAGES, itertools.cycle([WEIGHTS, "state.json", "optim.safetensors"])),
         *((damage, "manifest.json") for damage in (flipped_bit, emptied, missing))]  # fmt: skip


@pytest.mark.parametrize(("damage", "name"), KINDS, ids=lambda d: getattr(d, "__name__", d))
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_used(
    damage: Damage, name: str, whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    damage(tmp_path / "run/checkpoints/step-00000012" / name)
    with caplog.at_level(logging.WARNING):
        assert progress(tmp_path / "run") == (10, 12)  # which changes nothing
        opened = tiny.reopen(tmp_path / "run")
    assert opened.saved is not None and opened.saved.step == 10 and not opened.finished
    assert names(tmp_path / "run") == ["corrupt.step-00000012", "step-00000010"]
    assert (tmp_path / "run/best").read_bytes() == b"step-00000010\n"
    assert len(caplog.records) == 2 and "set aside as corrupt.step-00000012" in caplog.text


def test_a_checkpoint_under_the_name_of_another_step_is_damaged(
    whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    newest = run / "checkpoints/step-00000012"
    shutil.rmtree(newest)
    shutil.copytree(run / "checkpoints/step-00000010", newest)
    with pytest.raises(UserError, match="step-00000012: damaged") as error:
        modeldir.load(newest)
    assert error.value.code == Exit.DATA
    tiny.reopen(run)
    assert names(run) == ["corrupt.step-00000012", "step-00000010"]


def test_where_none_is_intact_training_does_not_start_from_zero(
    whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for path in (run / "checkpoints").iterdir():
        (path / WEIGHTS).write_bytes(b"")
    for _ in range(2):  # nor when one simply tries again
        with pytest.raises(UserError, match="no checkpoint is intact") as error:
            tiny.reopen(run)
        assert error.value.code == Exit.DATA


def test_a_checkpoint_of_a_later_format_is_refused_and_left_alone(
    whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    manifest = tmp_path / "run/checkpoints/step-00000012/manifest.json"
    data = manifest.read_bytes().replace(b'"format_version": 1', b'"format_version": 2')
    manifest.write_bytes(data)
    with pytest.raises(UserError, match=r"format 2, written by nmt 0\.") as error:
        tiny.reopen(tmp_path / "run")
    assert error.value.code == Exit.DATA
    assert names(tmp_path / "run") == ["step-00000010", "step-00000012"]
