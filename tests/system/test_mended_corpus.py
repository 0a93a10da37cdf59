"""Whatever becomes of a prepared corpus on its disk: it is made anew or refused, never used."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from nmt.config.data import Data
from nmt.corpus.prepare import Prepared, load, prepare
from nmt.errors import Exit, UserError
from nmt.system import manifest
from tests.corpus.test_prepare import BPE, contents, corpus
from tests.training.damage import Damage, flipped_bit, half, hole, missing


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Data, Prepared]:
    data = corpus(tmp_path_factory.mktemp("sound"))
    return data, prepare(data, BPE)


def copied(sound: tuple[Data, Prepared], tmp_path: Path) -> tuple[Data, Prepared, Path]:
    """The settings of a copy, the corpus that it is a copy of, and its directory."""
    data, good = sound
    shutil.copytree(good.path.parent, tmp_path / "cache")
    return replace(data, cache=str(tmp_path / "cache")), good, tmp_path / "cache" / good.path.name


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (flipped_bit, "train/source.ids"),
        (hole, "train/target.ids"),
        (missing, "train/lines"),
        (half, manifest.NAME),
    ],
)
def test_each_kind_of_damage_is_mended(
    damage: Damage,
    name: str,
    sound: tuple[Data, Prepared],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Opening refuses it, and preparing makes it anew, with one warning."""
    data, good, path = copied(sound, tmp_path)
    damage(path / name)
    assert contents(good._replace(path=path)) != contents(good)
    with pytest.raises(UserError, match=str(path)) as caught:
        load(path)  # as a worker of torchrun does
    assert caught.value.code == Exit.DATA
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        again = prepare(data, BPE)
    assert [record.getMessage().rpartition("; ")[2] for record in caplog.records] == [
        "the corpus is prepared anew"
    ]
    assert again.path == path and contents(again) == contents(good)


def test_damage_that_cannot_be_mended_is_refused(
    sound: tuple[Data, Prepared], tmp_path: Path
) -> None:
    """The text is there, but nothing can be written."""
    data, good, path = copied(sound, tmp_path)
    flipped_bit(path / "train/source.offsets")
    damaged = contents(good._replace(path=path))
    lock = path.with_name(f"{path.name}.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()  # stands for a file system that is mounted read-only, also where root runs this
    with pytest.raises(UserError, match=r"cannot be written .*\.offsets: damaged") as caught:
        prepare(data, BPE)
    assert caught.value.code == Exit.CANT_CREATE
    assert contents(good._replace(path=path)) == damaged
