"""A run on several corpora, stopped and resumed: the bytes and counts of one that never stopped."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.score import main as score
from nmt.cli.translate import main as translate
from nmt.corpus.prepare import prepare
from nmt.errors import Exit
from tests.corpus import test_corpora, test_prepare
from tests.training import tiny


def test_stop_and_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of joined lines that are segmented at random, by other processes or not."""
    caplog.set_level("INFO")
    drawn = {"max_length": 40, "join": 3, "bpe_dropout": 0.2}
    data = test_corpora.settings(tmp_path, (0.5, 2.25), **drawn)
    made = prepare(data, test_prepare.BPE)
    chosen: dict[str, Any] = {
        "data": {**asdict(data), "workers": 1},
        "model__tie": "none",
        "trainer__batch_tokens": 800,
        "trainer__max_epochs": 2,
        "trainer__log_every": 1,
    }
    tiny.train(tmp_path / "whole", made, **chosen)
    steps = tiny.lines(tmp_path / "whole", "train")[-1]["step"]
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, steps // 2 + 1)
        by_two = {**chosen, "data": {**chosen["data"], "workers": 2}}
        assert tiny.train(tmp_path / "run", made, **by_two).code == Exit.TERMINATED
    tiny.train(tmp_path / "run", made, **chosen)
    assert tiny.same(tmp_path / "run", tmp_path / "whole")
    (tmp_path / "in.de").write_text(">>fr<< hund\nhund\n>>it<< hund\n", encoding="utf-8")
    assert translate([str(tmp_path / "run"), str(tmp_path / "in.de")]) == 0
    untagged = "that do not begin with a target language of this model: 1 (first: line 2"
    err = capsys.readouterr().err
    assert untagged in err and "it knows >>fr<<, >>it<<" in err
    texts = [str(tmp_path / "in.de")] * 2
    assert score([str(tmp_path / "run"), *texts]) == 0 and untagged in capsys.readouterr().err
