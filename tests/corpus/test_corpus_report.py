"""What is said of a corpus before anything is trained on it."""

import logging
from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.config.compose import experiment_of
from nmt.corpus.prepare import prepare
from nmt.corpus.report import log_counts
from nmt.training.corpus import prepare as prepare_for
from tests.cli.test_other_corpus import FILES, write
from tests.corpus.test_prepare import BPE, DEV, corpus


def test_kept_dropped_unknown_and_known_pairs_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [(f"hund {i} lauft", f"dog {i} runs fast") for i in range(10)]
    dropped = [("zu " * 21, "too")] * 9 + [("", "dog")]
    report = prepare(corpus(tmp_path, [*train, DEV[0], *dropped]), BPE).report
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_counts(report)
    assert caplog.messages == [
        "train text: 11 of 21 pairs kept; dropped: too long 42.9 %, empty side 4.8 %",
        "dev text: 3 of 4 pairs kept; dropped: empty side 25.0 %; "
        "unknown pieces: source 13.2 %, target 0.0 %",
        "dev text: 1 of its 3 pairs are also training pairs",
    ]


def test_training_says_it_though_the_corpus_was_prepared_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "text", "haus")
    (root / "dev.de").write_text("один\n" * 9, encoding="utf-8")
    words = [*FILES, f"data.cache={tmp_path / 'cache'}", f"runs={tmp_path}", f"data.root={root}"]
    prepare_for(experiment_of(words).settings)
    assert train([*words, "name=one"]) == 0
    err = capsys.readouterr().err
    assert err.index("train text: 9 of 9 pairs kept\n") < err.index("step 1/2")
    log = (tmp_path / "one" / "train.log").read_text(encoding="utf-8")
    assert "dev text: 9 of 9 pairs kept; unknown pieces: source 100.0 %, target" in log
