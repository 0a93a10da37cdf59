"""What a run writes down while it goes."""

import logging
import math
import sys
from pathlib import Path

import pytest

from nmt.corpus.prepare import Prepared
from nmt.training.reports import Meter
from tests.training import tiny


def test_the_lines_of_metrics(whole: Path) -> None:
    train, dev = tiny.lines(whole, "train"), tiny.lines(whole, "dev")
    common = {"kind", "step", "epoch", "seconds", "lr", "perplexity"}
    own = {"loss", "tokens_per_second", "grad_norm", "memory_bytes"}
    assert all(line.keys() == common | own for line in train)
    memory = [line["memory_bytes"] for line in train]
    assert all(5e7 < taken < 1e11 for taken in memory)  # torch alone takes more than the least
    assert all(line.keys() == common for line in dev)
    assert [line["step"] for line in train] == [2, 4, 6, 8, 10, 12]  # log_every=2
    assert [(line["step"], line["epoch"]) for line in dev] == [
        *((2, 1), (4, 1), (6, 2), (8, 2), (10, 3), (12, 3))
    ]


def test_a_meter_weighs_by_tokens() -> None:
    meter = Meter()
    meter.add(loss=10.0, nll=8.0, tokens=10, norm=1.0, seconds=0.5)
    meter.add(loss=60.0, nll=40.0, tokens=20, norm=2.0, seconds=0.5)
    assert meter.report() == {
        "loss": 70 / 30,
        "perplexity": math.exp(48 / 30),
        "tokens_per_second": 30.0,
        "grad_norm": 2.0,
    }


def test_log_lines_go_to_train_log_and_to_the_terminal_alike(
    data: Prepared,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.INFO):
        tiny.train(tmp_path / "run", data, trainer__max_steps=2)
    text = (tmp_path / "run/train.log").read_bytes().decode()
    assert "step 2/2, epoch 1: dev perplexity" in text and "tokens/s" in text
    assert "step 2/2, epoch 1: dev perplexity" in caplog.text
    assert not logging.getLogger("nmt").handlers  # the run's handler is gone
    out, err = capfd.readouterr()
    assert out == "" and "update/s" not in err  # there is no terminal for a bar


def test_a_bar_on_a_terminal_and_the_same_numbers_in_tensorboard(
    data: Prepared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events_of = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sys.stderr.isatty = lambda: True  # type: ignore[method-assign]
    tiny.train(tmp_path / "run", data, trainer__max_steps=4, trainer__tensorboard=True)
    err = capsys.readouterr().err
    for shown in ("update/s", "loss ", "2/4"):
        assert shown in err
    events = events_of.EventAccumulator(str(tmp_path / "run/tb"))
    events.Reload()
    found = [(e.step, e.value) for e in events.Scalars("dev/perplexity")]
    dev = tiny.lines(tmp_path / "run", "dev")
    assert [step for step, _ in found] == [line["step"] for line in dev]
    assert [value for _, value in found] == pytest.approx([line["perplexity"] for line in dev])
