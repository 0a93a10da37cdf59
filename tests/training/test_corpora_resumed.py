"""A run on several corpora, stopped and resumed: the bytes and counts of one that never stopped."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.score import main as score
from nmt.cli.translate import main as translate
from nmt.corpus.prepare import prepare
from nmt.errors import Exit
from nmt.training import corpus
from tests.corpus import test_corpora, test_prepare
from tests.training import ranks, tiny
from tests.training.test_resume import same

MORE: dict[str, dict[str, Any]] = {
    "alone": {},
    "joined": {"join": 3},
    "sampled": {"bpe_dropout": 0.2},
}


@pytest.mark.parametrize("kind", MORE)
def test_stop_and_resume(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO")
    data = test_corpora.settings(tmp_path, (0.5, 2.25), max_length=40, **MORE[kind])
    made = prepare(data, test_prepare.BPE)
    chosen: dict[str, Any] = {
        "data": asdict(data),
        "model__tie": "none",
        "trainer__batch_tokens": 400,
        "trainer__max_epochs": 2,
        "trainer__log_every": 1,
    }
    tiny.train(tmp_path / "whole", made, **chosen)
    lines = tiny.lines(tmp_path / "whole", "train")
    steps = lines[-1]["step"]
    for stop in (1, steps // 2, steps // 2 + 2):
        with monkeypatch.context() as patch:
            tiny.stop_after(patch, stop)
            assert tiny.train(tmp_path / "run", made, **chosen).code == Exit.TERMINATED
    tiny.train(tmp_path / "run", made, **chosen)
    assert same(tmp_path / "run", tmp_path / "whole")
    (tmp_path / "in.de").write_text(">>fr<< hund\nhund\n>>it<< hund\n", encoding="utf-8")
    assert translate([str(tmp_path / "run"), str(tmp_path / "in.de")]) == 0
    untagged = "that do not begin with a target language of this model: 1 (first: line 2"
    err = capsys.readouterr().err
    assert untagged in err and "it knows >>fr<<, >>it<<" in err
    texts = [str(tmp_path / "in.de")] * 2
    assert score([str(tmp_path / "run"), *texts]) == 0 and untagged in capsys.readouterr().err
    seen = {name: lines[-1][f"pairs_{name}"] for name in test_corpora.SIZES}
    wanted = {"fr": 2 * 150, "it": 2 * 225}  # weight x pairs, in two epochs
    assert all(abs(wanted[name] - seen[name]) <= 50 for name in wanted)  # four sigma, joined


@pytest.mark.slow
def test_two_ranks_draw_the_pairs_of_one(tmp_path: Path) -> None:
    data = test_corpora.settings(tmp_path, (0.5, 2.25), max_length=40)
    chosen = {**tiny.EXACT, "data": asdict(data), "model__tie": "none", "trainer__max_epochs": 2}
    made = corpus.prepare(tiny.settings(**chosen))  # the ranks find it prepared
    tiny.train(tmp_path / "one", made, **chosen)
    ranks.train(2, tmp_path, json.dumps(chosen))
    one, two = (tiny.lines(tmp_path / run) for run in ("one", "run"))
    assert len(one) == len(two) and one[-1]["step"] > 10
    for a, b in zip(one, two, strict=True):
        assert b["perplexity"] == pytest.approx(a["perplexity"], rel=1e-5)
        for name in test_corpora.SIZES:  # after each update
            assert b.get(f"pairs_{name}") == a.get(f"pairs_{name}")
    seen = [line["pairs_it"] for line in two if line["kind"] == "train"][-1]
    assert seen == pytest.approx(2 * 2.25 * 100, abs=35)  # four sigma
