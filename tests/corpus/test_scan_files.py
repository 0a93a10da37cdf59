"""The files of a corpus: compressed, columns of tables, and text that is held out of another."""

import gzip
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from nmt.config.data import Data
from nmt.corpus.prepare import fingerprint, prepare
from nmt.corpus.report import log_remarks
from nmt.errors import Exit, UserError
from nmt.text.lines import side_file
from tests.composing import settings_of


def corpus(root: Path, lines: int = 40, **changes: Any) -> Data:
    """Each pair twice, 20 apart, and no development text."""
    (root / "train.de").write_bytes(b"".join(b"ein Haus %d\r\n" % (i % 20) for i in range(lines)))
    (root / "train.en").write_bytes(b"".join(b"a house %d\n" % (i % 20) for i in range(lines)))
    given = ("data=files", f"data.root={root}", f"data.cache={root}/cache", "data.dev_lines=4")
    data = settings_of(*given).data
    return replace(data, **changes)


def test_it_is_the_corpus_of_which_these_pairs_are_other_files(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    held, texts = [0, 10, 20, 30], (data.train_source, data.train_target)
    named: dict[str, Any] = {"dev_lines": None, "cache": str(tmp_path / "other")}
    for side, path in zip(("source", "target"), map(Path, texts), strict=True):
        lines = path.read_text(encoding="utf-8").splitlines()
        written = {
            "train": ["" if i % 20 in (0, 10) else line for i, line in enumerate(lines)],
            "dev": [lines[i] for i in held],
        }
        for split, rows in written.items():
            file = tmp_path / f"by-hand.{split}.{side}"
            file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
            named[f"{split}_{side}"] = str(file)
    ours, by_hand = (prepare(d, segmenter) for d in (data, replace(data, **named)))
    assert ours.path.name == by_hand.path.name  # so that a directory of 0.2 is found
    for split in ("train", "dev"):
        one, other = (getattr(prepared, split) for prepared in (ours, by_hand))
        assert [list(map(bytes, one.pair(i))) for i in range(len(one))] == [
            list(map(bytes, other.pair(i))) for i in range(len(other))
        ]
    assert ours.train.lines.tolist() == by_hand.train.lines.tolist()
    assert ours.dev.lines.tolist() == [i + 1 for i in held]


def test_errors_name_the_line_of_the_text_that_was_given(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    lines = Path(data.train_target).read_bytes().split(b"\n")
    for row in (20, 21):  # one is held out
        spoilt = [*lines[:row], b"a \xff", *lines[row + 1 :]]
        Path(data.train_target).write_bytes(b"\n".join(spoilt))
        with pytest.raises(UserError) as e:
            prepare(data, segmenter)
        assert str(e.value).startswith(f"{tmp_path}/train.en:{row + 1}: byte 2 ")


def test_it_is_prepared_as_any_corpus_once(tmp_path: Path) -> None:
    data, segmenter = corpus(tmp_path), settings_of().segmenter
    expected = fingerprint(data, segmenter)
    assert not Path(data.cache).exists()  # to know it, nothing is written
    prepared = prepare(data, segmenter)
    assert (len(prepared.train), len(prepared.dev)) == (36, 4)
    assert 3 in prepared.train.lines and not {1, 11, 21, 31} & set(prepared.train.lines.tolist())
    assert prepared.facts["fingerprint"] == expected == fingerprint(data, segmenter)
    stamp = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    assert prepare(data, segmenter).path == prepared.path
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == stamp
    assert fingerprint(replace(data, dev_lines=5), segmenter) != prepared.facts["fingerprint"]


def test_what_is_held_out_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = corpus(tmp_path, 20, dev_lines=10)
    for path, extra in (data.train_source, "\n"), (data.train_target, "alone\n"):
        with Path(path).open("a") as file:
            file.write(extra)
    with caplog.at_level("INFO"):
        log_remarks(prepare(data, settings_of().segmenter).report)
    said = "train text: 10 of 11 pairs kept; dropped: empty side 9.1 %; held out: 10"
    assert said in caplog.messages
    assert not [each for each in caplog.messages if "are dropped" in each]


def test_borders_of_documents_are_not_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = corpus(tmp_path)
    for path in map(Path, (data.train_source, data.train_target)):
        lines = path.read_bytes().splitlines()
        path.write_bytes(
            b"".join((b"" if i % 10 == 0 else line) + b"\n" for i, line in enumerate(lines))
        )
    with caplog.at_level("INFO"):
        prepared = prepare(data, settings_of().segmenter)
        log_remarks(prepared.report)
    assert prepared.dev.lines.tolist() == [2, 12, 22, 32]  # the lines after 1, 11, 21 and 31
    said = "train text: 32 of 36 pairs kept; dropped: empty side 11.1 %; held out: 4"
    assert said in caplog.messages


def test_too_many_lines_are_refused_and_absent_text_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"dev_lines=21: .*train\.de has 40 lines; hold out half"
    ) as e:
        fingerprint(corpus(tmp_path, dev_lines=21), settings_of().segmenter)
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
    with pytest.raises(UserError, match=rf"{table}:1: has no column 4, only 3") as e:
        fingerprint(replace(named, train_target=f"{table}:4"), segmenter)
    assert e.value.code == Exit.DATA


@pytest.mark.parametrize("named", ["", ".", "/"])
def test_no_file_is_named(named: str) -> None:
    with pytest.raises(UserError, match=f"^'{re.escape(named)}': no file; set data.root") as error:
        side_file(named, "set data.root")
    assert error.value.code == Exit.NO_INPUT


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
