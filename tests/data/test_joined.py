"""Lines joined and taken apart again, and the record that vouches for them."""

import errno
import gzip
import hashlib
import json
import math
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.corpus import read_text
from nmt.data.joined import Joined, by_sentence, described, join, parts_of, write
from nmt.errors import Exit, UserError

# What may stand in a line that was read from a file: anything but LF, and no CR at its end. Text
# with many NULs is taken for UTF-16.
LINES = st.text(st.characters(exclude_characters="\n\r\ufeff\0", exclude_categories=["Cs"]))
PAIRS = st.lists(st.tuples(LINES, LINES), max_size=12)
DE = ["ein\rHaus", "", "das\u2028ist", " gut ", "na\u0085ja"]
EN = ["a house", "no", "", "it is good", "well"]


def made(directory: Path, k: int = 2, name: str = "set") -> tuple[Path, Path]:
    return write(directory, name, "de", "en", join(DE, EN, k), {"k": k, "inputs": []})


@given(PAIRS, st.integers(1, 5))
def test_joining_loses_nothing(pairs: list[tuple[str, str]], k: int) -> None:
    sources, references = [s for s, _ in pairs], [r for _, r in pairs]
    found = join(sources, references, k)
    assert len(found.sources) == len(found.references) == math.ceil(len(pairs) / k)
    assert [s for side, _ in found.parts for s in side] == sources
    assert [r for _, side in found.parts for r in side] == references
    assert found.sources == [" ".join(side) for side, _ in found.parts]
    assert found.references == [" ".join(side) for _, side in found.parts]
    assert [len(side) for side, _ in found.parts[:-1]] == [k] * (len(found.parts) - 1)
    assert " ".join(found.sources).split() == " ".join(sources).split()


@given(st.lists(st.integers(0, 2), max_size=15), st.integers(1, 4))
def test_no_line_joins_two_documents(documents: list[int], k: int) -> None:
    lines = [f"{n}" for n in range(len(documents))]
    found = join(lines, lines, k, documents)
    assert [s for side, _ in found.parts for s in side] == lines
    for side, _ in found.parts:
        assert len({documents[int(s)] for s in side}) == 1
        assert len(side) <= k
    for one, next_one in pairwise(side for side, _ in found.parts):  # none shorter than it must be
        assert len(one) == k or documents[int(one[-1])] != documents[int(next_one[0])]


def test_an_empty_side_stays() -> None:
    found = join(DE, EN, 2)
    assert found.sources == ["ein\rHaus ", "das\u2028ist  gut ", "na\u0085ja"]
    assert found.references == ["a house no", " it is good", "well"]


def test_what_cannot_be_joined() -> None:
    with pytest.raises(UserError, match="joining 0 lines"):
        join(DE, EN, 0)


@given(pairs=PAIRS, k=st.integers(2, 4))
def test_the_record_takes_lines_apart(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], k: int
) -> None:
    found = join([s for s, _ in pairs], [r for _, r in pairs], k)
    texts = write(tmp_path_factory.mktemp("set"), "x", "de", "en", found, {})
    assert [read_text(text) for text in texts] == [found.sources, found.references]
    joined = any(len(side) > 1 for side, _ in found.parts)
    assert parts_of(*texts) == (found.parts if joined else None)
    if joined:
        lines = by_sentence(texts[0])
        assert [(str(line), line.sentences) for line in lines] == [
            (source, sources)
            for source, (sources, _) in zip(found.sources, found.parts, strict=True)
        ]
    else:
        with pytest.raises(UserError, match="says that nothing was joined") as raised:
            by_sentence(texts[0])
        assert raised.value.code == Exit.NO_INPUT


def test_what_the_record_says(tmp_path: Path) -> None:
    before = tmp_path / "in.de"
    before.write_bytes(b"ein\r\n")
    about = described([before], 2, documents=3)
    texts = write(tmp_path / "new", "my.set", "de", "en", join(DE, EN, 2), about)
    assert [text.name for text in texts] == ["my.set.de", "my.set.en"]
    record: dict[str, Any] = json.loads((tmp_path / "new/my.set.json").read_bytes())
    assert (record["format"], record["lines"], record["sentences"]) == (2, 3, 5)
    assert record["about"]["k"] == 2
    assert record["about"]["documents"] == 3
    expected = hashlib.sha256(b"ein\r\n").hexdigest()
    assert record["about"]["inputs"] == [{"path": str(before), "sha256": expected}]
    assert record["source"] == [DE[:2], DE[2:4], DE[4:]]
    assert record["reference"] == [EN[:2], EN[2:4], EN[4:]]


def test_nothing_joined_nothing_to_take_apart(tmp_path: Path) -> None:
    source, reference = made(tmp_path, k=1)
    assert parts_of(source, reference) is None
    source.write_bytes(b"other\n")  # but the record still vouches for the texts
    with pytest.raises(UserError, match="is not the source"):
        parts_of(source, reference)


def test_no_record(tmp_path: Path) -> None:
    source, reference = made(tmp_path)
    record = tmp_path / "set.json"
    record.unlink()
    assert parts_of(source, reference) is None
    for other in ("[1]", '{"kind": "zoo"}', "3"):  # somebody's file of that name
        record.write_text(other)
        assert parts_of(source, reference) is None


def test_compressed_texts_are_the_same_texts(tmp_path: Path) -> None:
    texts = made(tmp_path)
    packed = []
    for text in texts:
        packed.append(text.with_name(f"{text.name}.gz"))
        packed[-1].write_bytes(gzip.compress(text.read_bytes()))
        text.unlink()
    assert parts_of(packed[0], packed[1]) == join(DE, EN, 2).parts


@pytest.mark.parametrize("side", ["source", "reference"])
def test_a_changed_text_is_refused(tmp_path: Path, side: str) -> None:
    source, reference = made(tmp_path)
    text = source if side == "source" else reference
    text.write_bytes(text.read_bytes().replace(b"a", b"o"))
    with pytest.raises(UserError, match=f"is not the {side} that .*set.json describes") as caught:
        parts_of(source, reference)
    assert caught.value.code == Exit.DATA


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    source, reference = made(tmp_path)
    where = tmp_path / "set.json"
    where.write_bytes(where.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"set\.json: no valid JSON"):
        parts_of(source, reference)


@pytest.mark.parametrize(
    "change",
    [
        {"source": [[f"{DE[0]}x", *DE[1:3]], DE[3:]]},
        {"source": [[1, 2], DE[3:]]},
        {"source": None},
        {"reference": [EN[:3]]},
        {"reference": [EN[:3], "none"]},
        {"reference": None},
        {"format": 1},
        {"format": 3},
    ],
)
def test_a_changed_record_is_refused_and_made_again(change: dict[str, Any], tmp_path: Path) -> None:
    source, reference = made(tmp_path, k=3)
    where = tmp_path / "set.json"
    record = json.loads(where.read_bytes()) | change
    where.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))
    with pytest.raises(UserError, match="make the set again") as caught:
        parts_of(source, reference)
    assert caught.value.code == Exit.DATA
    assert parts_of(*made(tmp_path)) == join(DE, EN, 2).parts


def killed_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer dies instead of giving one more file its name."""
    rename = os.replace
    done: list[Path] = []

    def killed(old: Path, new: Path) -> None:
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(new)
        rename(old, new)

    monkeypatch.setattr(os, "replace", killed)


@pytest.mark.parametrize("writes", [1, 2])
def test_a_killed_writer_leaves_nothing_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    made(tmp_path, k=3)
    killed_after(writes, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, k=2)
    with pytest.raises(UserError, match=r"describes; make the set again"):
        parts_of(tmp_path / "set.de", tmp_path / "set.en")
    monkeypatch.undo()
    assert parts_of(*made(tmp_path, k=2)) == join(DE, EN, 2).parts


@pytest.mark.parametrize("writes", [1, 2])
def test_texts_never_stand_without_their_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    killed_after(writes, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path)
    assert (tmp_path / "set.json").exists()
    with pytest.raises(UserError, match="no such file"):
        parts_of(tmp_path / "set.de", tmp_path / "set.en")


@pytest.mark.parametrize("bad", ["a\nb", "end\r", "\ufeffa"])
def test_a_line_that_would_read_back_otherwise(tmp_path: Path, bad: str) -> None:
    lines = Joined([([bad], ["a"]), (["x"], ["b"])])
    with pytest.raises(UserError, match=r"set\.de:1: the line ends in a carriage return"):
        write(tmp_path, "set", "de", "en", lines, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ['{"name": "my package"}', "[]", "no JSON"])
def test_other_files_are_left_alone(text: str, tmp_path: Path) -> None:
    other = tmp_path / "set.json"
    other.write_text(text)
    with pytest.raises(UserError, match=r"set\.json: not the record of a test set") as caught:
        made(tmp_path)
    assert caught.value.code == Exit.CANT_CREATE
    assert [p.name for p in tmp_path.iterdir()] == ["set.json"]


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    texts = made(tmp_path, k=1)
    before = [text.read_bytes() for text in texts]
    with pytest.raises(UserError, match=r"set\.en: is an input"):
        write(tmp_path, "set", "fr", "en", join(DE, EN, 2), described(texts, 2))
    assert [text.read_bytes() for text in texts] == before
    assert not (tmp_path / "set.fr").exists()


@pytest.mark.parametrize("codes", [("de", "de"), ("de", "json")])
def test_two_files_of_one_name(tmp_path: Path, codes: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="two files of one name"):
        write(tmp_path, "set", *codes, join(DE, EN, 2), {})


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=os.strerror(errno.ENOTDIR)) as caught:
        made(tmp_path / "file" / "below")
    assert caught.value.code == Exit.CANT_CREATE
