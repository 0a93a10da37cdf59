"""The files of the embedded corpus: written once, whole or absent, and never replaced."""

from pathlib import Path

import pytest

from nmt.config.data import Data
from nmt.errors import Exit, UserError
from nmt.toy import ensure_text, write_text
from tests.composing import settings_of
from tests.training.tiny import tree

SMALL = ["data.train_pairs=30", "data.dev_pairs=6", "data.test_pairs=8"]


def corpus(place: Path, *more: str) -> Data:
    """A small corpus in a folder `text`."""
    data = settings_of(*SMALL, f"data.root={place / 'text'}", *more).data
    assert data.kind == "toy"
    return data


def test_it_is_written_once(tmp_path: Path) -> None:
    data = corpus(tmp_path)
    ensure_text(data)
    before = {path: path.stat().st_ino for path in (tmp_path / "text").iterdir()}
    ensure_text(corpus(tmp_path, "data.max_length=50", "data.join=2"))  # of the same sentences
    assert {path: path.stat().st_ino for path in (tmp_path / "text").iterdir()} == before
    (tmp_path / "fresh").mkdir()
    write_text(data, tmp_path / "fresh")
    written = tree(tmp_path / "text")
    del written["manifest.json"]
    assert written == tree(tmp_path / "fresh")


def test_a_directory_of_other_settings_is_refused(tmp_path: Path) -> None:
    ensure_text(corpus(tmp_path))
    before = tree(tmp_path)
    with pytest.raises(UserError, match=r"with data\.train_longest=30, which is 20 now") as error:
        ensure_text(corpus(tmp_path, "data.train_longest=20"))
    assert error.value.code == Exit.USAGE and tree(tmp_path) == before


def test_an_edited_file_is_noticed_and_kept(tmp_path: Path) -> None:
    name = "test.heads"
    data = corpus(tmp_path)
    ensure_text(data)
    (tmp_path / "text" / name).write_bytes(b"mine\n")
    with pytest.raises(UserError, match=f"{name}: .*; remove it") as error:
        ensure_text(data)
    assert error.value.code == Exit.DATA
    assert (tmp_path / "text" / name).read_bytes() == b"mine\n"


def test_files_of_others_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    ensure_text(corpus(tmp_path))  # into an empty directory
    (tmp_path / "b" / "text").mkdir(parents=True)
    (tmp_path / "b" / "text" / "train.de").write_bytes(b"mine\n")
    with pytest.raises(UserError, match=r"that data=toy wrote.*your text: data=files"):
        ensure_text(corpus(tmp_path / "b"))
    assert [path.name for path in (tmp_path / "b").rglob("*")] == ["text", "train.de"]


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"data\.root=") as error:
        ensure_text(corpus(tmp_path / "file"))
    assert error.value.code == Exit.CANT_CREATE
    with pytest.raises(UserError, match=r"data\.root=null"):
        ensure_text(settings_of("data.root=null").data)
