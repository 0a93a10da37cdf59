"""What is asked of a report: which of its tests are read sentence by sentence."""

from pathlib import Path

import pytest

from nmt.data.joined import join, write
from nmt.errors import Exit, UserError
from nmt.experiments import testsets as asked


def test_only_joined_tests_are_read_by_sentence(tmp_path: Path) -> None:
    lines = ["w1.", "w2.", "w3."]
    single, pairs = (
        asked.TestAsked(name, "", *write(tmp_path, name, "de", "en", join(lines, lines, k), {}))
        for name, k in (("single", 1), ("pairs", 2))
    )
    unrecorded = asked.TestAsked("bare", "", tmp_path / "bare.de", tmp_path / "bare.en")
    tests = asked.read_by_sentence([single, pairs, unrecorded])
    assert [test.by_sentence for test in tests] == [False, True, False]
    with pytest.raises(UserError, match="no test has joined lines") as raised:
        asked.read_by_sentence([single, unrecorded])
    assert raised.value.code == Exit.USAGE
