"""Files and directories that are whole or absent."""

import errno
import os
from pathlib import Path

import pytest

from nmt.system import atomic


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_replacement_leaves_the_old_file(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "best"
    atomic.replace(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            atomic.replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    atomic.replace(path, b"new")
    assert path.read_bytes() == b"new"


def test_discard_and_sweep(tmp_path: Path) -> None:
    for name in ("step-1", "step-2"):
        (tmp_path / name).mkdir()
    atomic.temporary_of(tmp_path / "step-1").mkdir()
    atomic.temporary_of(tmp_path / "best").write_bytes(b"")
    atomic.discard(tmp_path / "step-1")  # beside the remains of an earlier one
    atomic.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["step-2"]


def test_what_cannot_be_removed_stops_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = atomic.temporary_of(tmp_path / "step-1")
    held.mkdir()
    atomic.temporary_of(tmp_path / "best").write_bytes(b"")

    def not_empty(path: Path) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path / "file"))

    monkeypatch.setattr("shutil.rmtree", not_empty)
    atomic.sweep(tmp_path)
    assert [*tmp_path.iterdir()] == [held]
    assert f"{held}: cannot be removed: Directory not empty" in caplog.text


def test_a_directory_that_may_not_be_written_to_stays_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "step-1").mkdir()
    monkeypatch.setattr("os.access", lambda path, mode: False)  # also for root
    with pytest.raises(PermissionError):
        atomic.discard(tmp_path / "step-1")
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_sweep_leaves_what_bears_no_mark_of_ours_and_follows_no_link(tmp_path: Path) -> None:
    names = ["del.icious", ".nmt-stray-notes", "x.tmp-12", f".nmt-stray-{'0' * 32}", "precious"]
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_bytes(b"")
    atomic.temporary_of(tmp_path / "link").symlink_to(tmp_path / "precious")
    atomic.sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert all((tmp_path / name / "precious").exists() for name in names)


def test_a_temporary_name_knows_its_owner(tmp_path: Path) -> None:
    for name in ("step-1", ".hidden", "a.b c", "two\nlines"):
        stray = atomic.temporary_of(tmp_path / name)
        assert stray.parent == tmp_path and atomic.owner_of(stray) == tmp_path / name
        assert atomic.temporary_of(tmp_path / name) != stray
