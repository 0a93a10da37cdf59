"""What is said of a corpus before anything is trained on it."""

import logging
from pathlib import Path

import pytest

from nmt.cli.train import main as train
from nmt.config.compose import experiment_of
from nmt.corpus.prepare import prepare
from nmt.corpus.report import MUCH_DROPPED, MUCH_UNKNOWN, log_remarks
from nmt.training.corpus import prepare as prepare_for
from tests.cli.test_other_corpus import FILES, write
from tests.corpus.test_prepare import BPE, corpus


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == level]


def test_shares_are_said_and_warned_of_beyond_their_bounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = [(f"hund {i} lauft", f"dog {i} runs fast") for i in range(11)]
    long = [("zu " * 21, "too")] * 9
    good = prepare(corpus(tmp_path, [*train, *long, ("", "dog")]), BPE).report
    caplog.clear()
    with caplog.at_level(logging.INFO):
        log_remarks(good)
    assert messages(caplog, logging.INFO) == [
        "train text: 11 of 21 pairs kept; dropped: too long 42.9 %, empty side 4.8 %",
        "dev text: 3 of 4 pairs kept; dropped: empty side 25.0 %; "
        "unknown pieces: source 13.2 %, target 0.0 %",
    ]
    (unknown,) = messages(caplog, logging.WARNING)
    assert unknown.startswith("dev text: 13.2 % of its source pieces are unknown")
    assert MUCH_DROPPED == 0.5 and MUCH_UNKNOWN == 0.05  # README says so

    half = prepare(corpus(tmp_path, [*train, *long, ("", "dog"), ("", "a")]), BPE).report
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        log_remarks(half)
    assert messages(caplog, logging.WARNING)[0] == (
        "train text: 50.0 % of its pairs are dropped, most of them as too long; see data.max_length"
    )


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
    assert "dev text: 9 of 9 pairs kept; unknown pieces: source 100.0 %, target" in err
    log = (tmp_path / "one" / "train.log").read_text(encoding="utf-8")
    assert "WARNING dev text: 100.0 % of its source pieces are unknown" in log
