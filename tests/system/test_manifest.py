"""Directories are complete with their manifest, and every later change of a file is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.errors import Exit, UserError
from nmt.system import manifest
from nmt.system.manifest import VerifiedDirectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with manifest.directory(tmp_path / "corpus") as folder:
        (folder / "train").mkdir()
        (folder / "train/ids").write_bytes(b"\1\2")
        (folder / "facts.json").write_bytes(b'{"pairs": 1}')
    return tmp_path / "corpus"


def test_it_appears_with_all_files_and_their_sums(path: Path) -> None:
    sealed = VerifiedDirectory(path)
    assert sorted(sealed.files) == ["facts.json", "train/ids"]
    sealed.verify()
    assert sealed.read("train/ids") == b"\1\2" and sealed.json("facts.json") == {"pairs": 1}


def test_it_appears_at_the_end_only_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "whole"
    with manifest.directory(path) as folder:
        for name in ("a", "b"):
            (folder / name).write_bytes(name.encode())
            assert not path.exists()
    assert {p.name for p in path.iterdir()} == {"a", "b", manifest.NAME}
    with pytest.raises(OSError), manifest.directory(path) as folder:
        (folder / "c").touch()
    assert list(tmp_path.iterdir()) == [path] and not (path / "c").exists()


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), manifest.directory(tmp_path / "corpus") as folder:
        (folder / "ids").write_bytes(b"1")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_change_after_it_was_verified_is_noticed(path: Path) -> None:
    VerifiedDirectory(path).verify()
    status = (path / "train/ids").stat()
    (path / "train/ids").write_bytes(b"\1\3")
    os.utime(path / "train/ids", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UserError, match="train/ids: damaged; SHA-256") as caught:
        VerifiedDirectory(path).verify()
    assert caught.value.code == Exit.DATA


def test_files_that_are_not_listed_are_ignored(path: Path) -> None:
    (path / "notes.txt").touch()
    verified = VerifiedDirectory(path)
    verified.verify()
    assert verified.read("train/ids") == b"\1\2" and (path / "notes.txt").exists()


def test_a_readme_may_be_edited(tmp_path: Path) -> None:
    manifest.write(tmp_path / "export", [("weights", b"1"), ("README.md", b"a card")])
    sealed = VerifiedDirectory(tmp_path / "export")
    sealed.verify()
    (tmp_path / "export/README.md").write_bytes(b"a better card")
    sealed.verify()
    assert [*sealed.files] == ["weights"]


def test_what_another_version_wrote_is_refused_and_not_called_damaged(path: Path) -> None:
    where = path / manifest.NAME
    where.write_bytes(manifest.dump({**manifest.read(where), "format_version": 2}))
    with pytest.raises(manifest.OtherFormatError, match="format 2") as caught:
        VerifiedDirectory(path)
    assert caught.value.code == Exit.DATA


@pytest.mark.parametrize("name", ["/secret", "a/../../secret", "..", "a//b", ""])
def test_no_file_outside_is_read(name: str, path: Path) -> None:
    where = path / manifest.NAME
    record = manifest.read(where)
    record["files"][name] = {"sha256": "0", "bytes": 0}
    where.write_bytes(manifest.dump(record))
    with pytest.raises(UserError, match="no entry of a file"):
        VerifiedDirectory(path)


@pytest.mark.parametrize(
    "content",
    [
        *({"format_version": 1, "files": files} for files in (3, {"train/ids": 3}, None)),
        *([], {"files": {}}),
    ],
)
def test_a_manifest_of_another_shape_is_refused(content: object, path: Path) -> None:
    (path / manifest.NAME).write_bytes(manifest.dump(content))
    with pytest.raises(UserError) as caught:
        VerifiedDirectory(path)
    assert type(caught.value) is UserError and caught.value.code == Exit.DATA


SHORT_OF_MEMORY = """
import resource
import torch
from nmt.system import manifest

tensors = {"a": torch.zeros(40_000_000), "b": torch.zeros(40_000_000)}
manifest.dump_tensors({"c": torch.zeros(1)})  # all is imported
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 480_000_000, -1))  # for copies, not for the file
try:
    manifest.dump_tensors(tensors)
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory in use")
def test_tensors_that_do_not_fit_the_memory_are_a_memory_error() -> None:
    ran = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("MemoryError\n", "")
