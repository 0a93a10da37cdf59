"""Whatever becomes of a prepared corpus on its disk: it is made anew or refused, never used."""

import json
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmt import config
from nmt.data.prepare import Prepared, load, prepare
from nmt.data.store import COLUMN, OFFSETS
from nmt.errors import Exit, UserError
from nmt.storage import manifest
from tests.data.test_prepare import BPE, contents, corpus

Damage = Callable[[Path, random.Random], None]


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def chosen(root: Path, draw: random.Random, pattern: str = "*") -> Path:
    return draw.choice([path for path in files(root) if path.match(pattern)])


def flipped_bit(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw)
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def rotated(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw, "*.ids")
    ids = np.frombuffer(path.read_bytes(), "<u2")
    path.write_bytes(np.roll(ids, draw.randrange(1, len(ids))).tobytes())


def truncated(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw)
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def swapped(root: Path, draw: random.Random) -> None:
    one = chosen(root, draw)
    other = draw.choice([p for p in files(root) if p.read_bytes() != one.read_bytes()])
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def other_entry_of_the_vocabulary(root: Path, draw: random.Random) -> None:
    path = root / draw.choice(["source.json", "target.json"])
    side = json.loads(path.read_bytes())
    pieces = side["vocabulary"]
    pieces[draw.randrange(len(pieces))] = "another"
    path.write_bytes(json.dumps(side).encode())


def other_number_in_json(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw, "*.json")
    data = bytearray(path.read_bytes())
    at = draw.choice([i for i, byte in enumerate(data) if chr(byte).isdigit()])
    data[at] = ord(draw.choice([d for d in "123456789" if ord(d) != data[at]]))
    path.write_bytes(data)


def flipped_offsets(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw, "*.offsets")
    offsets = np.frombuffer(path.read_bytes(), OFFSETS).copy()
    at = draw.randrange(len(offsets) - 1)
    offsets[[at, at + 1]] = offsets[[at + 1, at]]
    path.write_bytes(offsets.tobytes())


def other_integer_beside(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw, "column.*")
    values = np.frombuffer(path.read_bytes(), COLUMN).copy()
    values[draw.randrange(len(values))] += draw.choice([-1, 1])
    path.write_bytes(values.tobytes())


def deleted(root: Path, draw: random.Random) -> None:
    chosen(root, draw).unlink()


def hole(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw, draw.choice(["*.ids", "*.offsets", "lines"]))
    data = bytearray(path.read_bytes())
    start = draw.randrange(len(data))
    while not any(data[start:]):
        start -= 1
    data[start:] = bytes(len(data) - start)
    path.write_bytes(data)


def directory_in_its_place(root: Path, draw: random.Random) -> None:
    path = chosen(root, draw)
    path.unlink()
    path.mkdir()


def strange_manifest(root: Path, draw: random.Random) -> None:
    strange = [b"", b"[]", b"null", b'{"files": []}', b'{"files": {"lines": 3}}', b"[" * 100_000]
    (root / manifest.NAME).write_bytes(draw.choice(strange))


DAMAGES: list[Damage] = [
    *(flipped_bit, rotated, truncated, swapped, other_entry_of_the_vocabulary),
    *(other_number_in_json, flipped_offsets, other_integer_beside, deleted, hole),
    *(directory_in_its_place, strange_manifest),
]
HUNDRED = [(damage, seed) for seed in range(100) for damage in [DAMAGES[seed % len(DAMAGES)]]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[config.Files, Prepared]:
    """A prepared corpus with a column beside its text."""
    root = tmp_path_factory.mktemp("sound")
    data = corpus(root)
    beside = {}
    for split in ("train", "dev"):
        lines = (root / f"{split}.de").read_bytes().split(b"\n")[:-1]
        beside[split] = str(root / f"{split}.depth")
        integers = [" ".join(str(len(word)) for word in line.split()) for line in lines]
        (root / f"{split}.depth").write_text("".join(f"{line}\n" for line in integers))
    column = config.Column("word", beside["train"], beside["dev"], None)
    data.columns = {"depth": column}
    return data, prepare(data, BPE)


def check(
    damage: Damage,
    seed: int,
    sound: tuple[config.Files, Prepared],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Damage a copy: opening refuses it, and preparing makes it anew, with one warning."""
    data, good = sound
    copied = config.Files(**{**vars(data), "cache": str(tmp_path / "cache")})
    shutil.copytree(good.path.parent, copied.cache)
    path = Path(copied.cache) / good.path.name
    damage(path, random.Random(seed))
    assert contents(good._replace(path=path)) != contents(good)
    with pytest.raises(UserError, match=str(path)) as caught:
        load(path)  # as a worker of torchrun does
    assert caught.value.code == Exit.DATA
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        again = prepare(copied, BPE)
    assert [record.getMessage().rpartition("; ")[2] for record in caplog.records] == [
        "the corpus is prepared anew"
    ]
    assert again.path == path and contents(again) == contents(good)
    for one, other in ((again.train, good.train), (again.dev, good.dev)):
        assert [tuple(map(bytes, one.pair(i))) for i in range(len(one))] == [
            tuple(map(bytes, other.pair(i))) for i in range(len(other))
        ]


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.__name__ for damage in DAMAGES])
def test_each_kind_of_damage_is_mended(
    damage: Damage,
    sound: tuple[config.Files, Prepared],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    check(damage, 1000, sound, tmp_path, caplog)


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "seed"), HUNDRED, ids=[f"{d.__name__}-{s}" for d, s in HUNDRED])
def test_a_hundred_damages_are_mended(
    damage: Damage,
    seed: int,
    sound: tuple[config.Files, Prepared],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    check(damage, seed, sound, tmp_path, caplog)


def test_damage_that_cannot_be_mended_is_refused(
    sound: tuple[config.Files, Prepared], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The text is there, but nothing can be written."""
    data, good = sound
    copied = config.Files(**{**vars(data), "cache": str(tmp_path / "cache")})
    shutil.copytree(good.path.parent, copied.cache)
    path = Path(copied.cache) / good.path.name
    flipped_offsets(path, random.Random(0))
    damaged = contents(good._replace(path=path))
    lock = path.with_name(f"{path.name}.lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()  # stands for a file system that is mounted read-only, also where root runs this
    with pytest.raises(UserError, match=r"cannot be written .*\.offsets: damaged") as caught:
        prepare(copied, BPE)
    assert caught.value.code == Exit.CANT_CREATE
    assert contents(good._replace(path=path)) == damaged


def test_a_process_hashes_a_corpus_once(
    sound: tuple[config.Files, Prepared], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, good = sound
    copied = config.Files(**{**vars(data), "cache": str(tmp_path / "cache")})
    shutil.copytree(good.path.parent, copied.cache)
    path = Path(copied.cache) / good.path.name
    hashed: list[Path] = []

    sha256_of = manifest.sha256_of

    def watched(one: Path) -> str:
        hashed.append(one)
        return sha256_of(one)

    monkeypatch.setattr(manifest, "sha256_of", watched)
    for _ in range(2):
        prepare(copied, BPE)
        load(path)
    assert sorted(hashed) == [p for p in files(path) if p.name != manifest.NAME]
    deleted(path, random.Random(0))
    built = prepare(copied, BPE)
    hashed.clear()
    load(built.path)  # what was hashed as it was written is not hashed again
    assert hashed == []
