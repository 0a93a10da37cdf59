"""newstest_all and concat_seq: sets put together, and lines joined."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from nmt.data.corpus import read_text
from nmt.data.joined import parts_of
from nmt.errors import UserError
from nmt.recipes import lock as locks
from nmt.recipes.testsets import document_numbers, join_sets, read

LOCK = locks.read(locks.path_of("wmt19_deen"))
PAPER = {name: LOCK.sets[name].lines or 0 for name in LOCK.all}

NEWSTEST = Path(__file__).parents[3] / "shared/data/newstest/de-en"
YEARS = (2008, *range(2010, 2015), 2017, 2018)  # those of the paper's ten that are there


def pair(directory: Path, name: str, lines: int, empty: int = 0) -> tuple[str, Path, Path]:
    """A made-up test set of so many lines, the last ones empty."""
    paths = directory / f"{name}.de", directory / f"{name}.en"
    for path in paths:
        full = [f"{path.name} {n}." for n in range(lines - empty)]
        path.write_bytes("".join(f"{line}\n" for line in full + [""] * empty).encode())
    return name, *paths


def record(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
    return found


def test_all_lines_in_order_and_joined_across_borders(tmp_path: Path) -> None:
    pairs = [pair(tmp_path, name, n) for name, n in (("a", 3), ("b", 5), ("newstest2008", 2))]
    built = join_sets(pairs, tmp_path / "out", ("de", "en"), "concat_seq")
    whole_texts = join_sets(pairs, tmp_path / "out", ("de", "en"), "newstest_all", 1).texts
    joined_texts = built.texts
    assert built.lines == {"a": 3, "b": 5, "newstest2008": 2, "concat_seq": 5}
    for side, text in enumerate(whole_texts):
        whole = [line for _, *paths in pairs for line in read_text(paths[side])]
        assert read_text(text) == whole
        two = [" ".join(whole[n : n + 2]) for n in range(0, 10, 2)]
        assert read_text(joined_texts[side]) == two
    assert parts_of(*whole_texts) is None
    parts = parts_of(*joined_texts)
    assert parts is not None and parts[1] == (["a.de 2.", "b.de 0."], ["a.en 2.", "b.en 0."])
    about = record(whole_texts[0])["about"]
    assert about["sets"] == [
        {"name": "a", "first": 1, "last": 3},
        {"name": "b", "first": 4, "last": 8},
        {"name": "newstest2008", "first": 9, "last": 10},
    ]
    assert [entry["path"] for entry in about["inputs"]] == [
        str(path) for _, *paths in pairs for path in paths
    ]
    about = record(joined_texts[0])["about"]
    assert about["across"] == [2]  # b ends with a line
    assert about["inputs"] == record(whole_texts[0])["about"]["inputs"]


def test_the_same_inputs_make_the_same_bytes(tmp_path: Path) -> None:
    pairs = [pair(tmp_path, "a", 3), pair(tmp_path, "b", 4)]
    first = join_sets(pairs, tmp_path / "out", ("de", "en"), "x", 3)
    files = sorted((tmp_path / "out").iterdir())
    before = [file.read_bytes() for file in files]
    assert len(before) == 3
    assert join_sets(pairs, tmp_path / "out", ("de", "en"), "x", 3) == first
    assert [file.read_bytes() for file in files] == before


def test_an_empty_set_is_refused_and_empty_lines_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="the file is empty"):
        read(*pair(tmp_path, "none", 0)[1:])
    read(*pair(tmp_path, "gaps", 5, empty=2)[1:])
    assert sum("empty lines: 2" in message for message in caplog.messages) == 2


def test_document_names(tmp_path: Path) -> None:
    path = tmp_path / "docs"
    path.write_bytes(b"a\na\nb\na\na\n")
    assert document_numbers(path, 5) == [1, 1, 2, 3, 3]
    with pytest.raises(UserError, match="names the documents of 5 lines, but the test set has 4"):
        document_numbers(path, 4)
    path.write_bytes(b"a\n\nb\n")
    with pytest.raises(UserError, match="docs:2: no name"):
        document_numbers(path, 3)


@pytest.mark.skipif(not NEWSTEST.is_dir(), reason="needs the newstest files beside the project")
@pytest.mark.parametrize(
    ("years", "lines"), [(YEARS[:1], 2051), pytest.param(YEARS, 22_551, marks=pytest.mark.slow)]
)
def test_the_real_sets_line_for_line(years: tuple[int, ...], lines: int, tmp_path: Path) -> None:
    names = [f"newstest{year}" for year in years]
    missing = [name for name in PAPER if name not in names]
    pairs = [(name, NEWSTEST / f"{name}.de", NEWSTEST / f"{name}.en") for name in names]
    whole, both = (
        join_sets(pairs, tmp_path, ("de", "en"), *kind).texts for kind in (("all", 1), ("two", 2))
    )
    for side in (0, 1):
        raw = b"".join(paths[side].read_bytes() for _, *paths in pairs)
        assert whole[side].read_bytes() == raw
        joined = both[side].read_bytes()
        assert raw.count(b"\n") == lines == 28_075 - sum(PAPER[name] for name in missing)
        assert joined.count(b"\n") == math.ceil(lines / 2)
        assert joined.replace(b"\n", b" ") == raw.replace(b"\n", b" ")  # each byte in its place
    parts = parts_of(*both)
    assert parts is not None
    assert [s for sources, _ in parts for s in sources] == read_text(whole[0])
    assert [r for _, references in parts for r in references] == read_text(whole[1])
