"""Test sets: which of them are read sentence by sentence."""

from pathlib import Path

import pytest

from nmt.data.joined import join, write
from nmt.errors import Exit, UserError
from nmt.experiments.testsets import ParallelFiles, read_by_sentence


def test_only_joined_tests_are_read_by_sentence(tmp_path: Path) -> None:
    lines = ["w1.", "w2.", "w3."]
    single, pairs = (
        ParallelFiles(name, "", *write(tmp_path, name, "de", "en", join(lines, lines, k), {}))
        for name, k in (("single", 1), ("pairs", 2))
    )
    unrecorded = ParallelFiles("bare", "", tmp_path / "bare.de", tmp_path / "bare.en")
    tests = read_by_sentence([single, pairs, unrecorded])
    assert [test.by_sentence for test in tests] == [False, True, False]
    with pytest.raises(UserError, match="no test has joined lines") as raised:
        read_by_sentence([single, unrecorded])
    assert raised.value.code == Exit.USAGE
