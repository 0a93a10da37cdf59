"""Development text that is held out of the training text."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from nmt.config import Files
from nmt.data.corpus import side_file
from nmt.data.preparation.heldout import held_out
from nmt.data.prepare import fingerprint, prepare
from nmt.errors import Exit, UserError
from tests.composing import settings_of


def corpus(root: Path, lines: int = 40, **changes: Any) -> Files:
    """Each pair twice, 20 apart, and no development text."""
    (root / "train.de").write_bytes(b"".join(b"ein Haus %d\r\n" % (i % 20) for i in range(lines)))
    (root / "train.en").write_bytes(b"".join(b"a house %d\n" % (i % 20) for i in range(lines)))
    given = ("data=files", f"data.root={root}", f"data.cache={root}/cache", "data.dev_lines=4")
    data = settings_of(*given).data
    assert isinstance(data, Files)
    return replace(data, **changes)


def lines_of(path: str | None) -> list[str]:
    return Path(str(path)).read_text(encoding="utf-8").split("\n")[:-1]


def test_no_pair_is_in_both_texts_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    data = held_out(corpus(tmp_path))
    assert isinstance(data, Files) and data.dev_lines is None
    assert lines_of(data.dev_source) == [f"ein Haus {i % 20}" for i in (0, 10, 20, 30)]
    assert lines_of(data.dev_target) == [f"a house {i % 20}" for i in (0, 10, 20, 30)]
    trained = ["" if i % 20 in (0, 10) else f"ein Haus {i % 20}" for i in range(40)]
    assert lines_of(data.train_source) == trained
    assert [bool(t) for t in lines_of(data.train_target)] == [bool(line) for line in trained]


def test_it_is_prepared_as_any_corpus_once(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    prepared = prepare(data, segmenter)
    assert (len(prepared.train), len(prepared.dev)) == (36, 4)
    assert 3 in prepared.train.lines and not {1, 11, 21, 31} & set(prepared.train.lines.tolist())
    assert prepared.facts["fingerprint"] == fingerprint(data, segmenter)
    stamp = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    assert prepare(data, segmenter).path == prepared.path
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == stamp
    assert fingerprint(replace(data, dev_lines=5), segmenter) != prepared.facts["fingerprint"]


def test_too_many_lines_are_refused_and_absent_text_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"dev_lines=21: .*train\.de has 40 lines; hold out half"
    ) as e:
        held_out(corpus(tmp_path, dev_lines=21))
    assert e.value.code == Exit.DATA and not (tmp_path / "cache").exists()
    absent: dict[str, Any] = {"dev_lines": None, "dev_source": "dev.de", "dev_target": "dev.en"}
    with pytest.raises(UserError, match=r"or hold out lines .*: data\.dev_lines=N") as e:
        prepare(corpus(tmp_path, **absent), settings_of().segmenter)
    assert e.value.code == Exit.NO_INPUT


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_sides_are_read(ending: str, tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    plain = fingerprint(data, segmenter)
    for name in ("train.de", "train.en"):
        path = tmp_path / name
        pack = gzip.compress if ending == ".gz" else zstd.compress
        path.with_name(name + ending).write_bytes(pack(path.read_bytes()))
        path.unlink()
    assert fingerprint(data, segmenter) == plain == prepare(data, segmenter).facts["fingerprint"]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_columns_of_a_table_are_sides(ending: str, tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    table = tmp_path / f"all.tsv{ending}"
    sides = [Path(p).read_bytes().split(b"\n")[:-1] for p in (data.train_source, data.train_target)]
    rows = b"".join(b"\t".join((b"0.7", *pair)) + b"\n" for pair in zip(*sides, strict=True))
    packed = {"": rows, ".gz": gzip.compress(rows), ".zst": zstd.compress(rows)}
    table.write_bytes(packed[ending])
    named = replace(data, train_source=f"{table}:2", train_target=f"{table}:3")
    assert fingerprint(named, segmenter) == fingerprint(data, segmenter)
    assert held_out(replace(named, dev_lines=5))  # read in two passes
    with pytest.raises(UserError, match=rf"{table}:1: has no column 4, only 3") as e:
        fingerprint(replace(named, train_target=f"{table}:4"), segmenter)
    assert e.value.code == Exit.DATA


def test_tables_are_named(tmp_path: Path) -> None:
    table = tmp_path / "dev.tsv"
    table.write_text("ein Haus\ta house\n", encoding="utf-8")
    advice = f"name a column of it, such as {table}:1"
    for name, message in (
        ("dev.de", f"{tmp_path / 'dev.de'}: no such file; there is {table}: {advice}"),
        ("dev.tsv", f"{table}: a table; {advice}"),
        ("no.tsv:1", f"{tmp_path / 'no.tsv'}: no such file; set data.root"),
    ):
        with pytest.raises(UserError) as e:
            side_file(str(tmp_path / name), "set data.root")
        assert str(e.value) == message
