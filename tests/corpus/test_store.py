"""What is written is read back; files that do not fit are refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.corpus.pairs import SIDES, Pairs, id_type, read_pairs, write_pairs

SEQUENCE = st.lists(st.integers(3, 60_000), max_size=5).map(lambda ids: [*ids, 2])
PAIRS = st.lists(st.tuples(SEQUENCE, SEQUENCE), min_size=1, max_size=12)


def write(path: Path, pairs: list[tuple[list[int], list[int]]], part: int = 3) -> None:
    parts = []
    for start in range(0, len(pairs), part):
        some = pairs[start : start + part]
        rows = {name: [pair[side] for pair in some] for side, name in enumerate(SIDES)}
        lines = np.arange(start, start + len(some)) * 2 + 1
        parts.append(Pairs.of_rows(lines, rows, np.dtype(np.int64)))
    write_pairs(path, parts, id_type(60_000))


@given(PAIRS)
@settings(deadline=None, max_examples=30)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]]
) -> None:
    path = tmp_path_factory.mktemp("s") / "prepared" / "train"
    write(path, pairs)
    store = read_pairs(path)
    assert len(store) == len(pairs)
    for i, (source, target) in enumerate(pairs):
        found = store.pair(i)
        assert (found[0].tolist(), found[1].tolist()) == (source, target)
    assert store.lengths["source"].tolist() == [len(source) - 1 for source, _ in pairs]
    assert store.lengths["target"].tolist() == [len(target) - 1 for _, target in pairs]
    assert store.lengths["source"].dtype == np.int32
    assert store.lines.tolist() == [2 * i + 1 for i in range(len(pairs))]
    with pytest.raises(ValueError, match="read-only"):
        store.ids["source"][0] = 1


def test_columns_keep_in_step_with_the_source(tmp_path: Path) -> None:
    per = {"tag": "word", "language": "sentence"}
    rows, dtype = {side: [[5, 2], [6, 7, 2]] for side in SIDES}, id_type(9)
    parts = []
    for part in range(2):
        tags = np.array([-1, 2**31 - 1, 3, 4, -(2**31)], np.int32)
        columns = {"tag": tags, "language": np.array([part, 7], np.int32)}
        parts.append(Pairs.of_rows(np.array([1, 2]) + 2 * part, rows, dtype, per, columns))
    write_pairs(tmp_path / "train", parts, dtype, per)
    store = read_pairs(tmp_path / "train")
    assert store.per == per
    assert store.columns["tag"].tolist() == [-1, 2**31 - 1, 3, 4, -(2**31)] * 2
    assert store.columns["language"].tolist() == [0, 7, 1, 7]
    assert len(store.columns["tag"]) == store.offsets["source"][-1]


def test_ids_take_the_smallest_type_that_holds_them() -> None:
    assert id_type(2**16, 5) == np.uint16  # the greatest id is 2**16 - 1
    assert id_type(5, 2**16 + 1) == np.uint32
