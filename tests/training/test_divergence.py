"""Training that gets worse than guessing: said once, and stopped where it goes on."""

import json
import logging
import math
from itertools import count
from pathlib import Path

import pytest

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.storage import manifest
from nmt.training import loss
from nmt.training.divergence import Divergence
from nmt.training.reports import Meter
from tests.training import tiny

NO_DROPOUT = {f"model__{which}dropout": 0.0 for which in ("", "attention_", "feedforward_")}


def stops(dev: list[float], train: list[float], first: int = 1) -> int | None:
    """The checkpoint at which training ends, from 1; perplexities of a vocabulary of 100."""
    watched = Divergence(100, first)
    watched.load_state_dict(
        manifest.parse(manifest.dump(watched.state_dict()), Path())
    )  # before the first
    for number, (of_dev, of_train) in enumerate(zip(dev, train, strict=True), 1):
        again = Divergence(100, first)
        again.load_state_dict(json.loads(json.dumps(watched.state_dict())))  # as a resumed run does
        watched = again
        if watched.observe(number, of_dev, of_train) is not None:
            return number
    return None


@pytest.mark.parametrize(
    ("dev", "stop"),
    [
        ([90, 110, 120, 130], 4),
        ([90, 110, 120, 115, 116, 117, 118], 7),
        ([200, 210, 220, 215, 110, 60, 50], None),  # recovers
        ([1e9, 1e8, 1e7, 1e6, 1e5, 1e4], None),  # the first checkpoints of a wild start
        ([90, 91, 92, 93, 94], None),  # worse, but better than guessing
        ([110, 110, 110, 110], None),
        ([90, 9e4, 1e3, 5e4, 2e3], 4),  # up and down, but never back
        ([110, 1e4, 1e3, 1e4, 105, 1e4, 1e3], None),  # back in time
    ],
)
def test_growing_beyond_the_vocabulary_ends_training(dev: list[float], stop: int | None) -> None:
    assert stops(dev, dev) == stop
    assert stops(dev, [5.0] * len(dev)) is None  # by heart, or dev text of another kind
    assert stops(dev, [math.nan] * len(dev)) is None  # no update was made


@pytest.mark.parametrize(
    ("dev", "warnings"),
    [([190, 150, 120, 90], 0), ([150, 151], 1), ([201, 150], 1), ([90, 101, 102], 1)],
)
def test_a_start_near_the_size_of_the_vocabulary_is_no_news(
    dev: list[float], warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    stops(dev, dev)
    assert caplog.text.count("worse than guessing") == warnings


def test_the_first_epoch_does_not_count() -> None:
    assert stops([110, 120, 130, 140, 150], [1e9] * 5, first=4) is None
    assert stops([110, 120, 130, 140, 150, 160], [1e9] * 6, first=4) == 6


def test_the_perplexity_since_a_checkpoint_outlives_reports() -> None:
    meter = Meter()
    meter.add(loss=1.0, nll=8.0, counts=[10], norm=1.0, seconds=0.5)
    meter.reset()
    meter.add(loss=1.0, nll=12.0, counts=[10], norm=1.0, seconds=0.5)
    again = Meter()
    again.load_state_dict(json.loads(json.dumps(meter.state_dict())))
    assert again.since_checkpoint() == math.exp(1.0)
    assert math.isnan(again.since_checkpoint())


def test_a_run_that_diverges_stops_and_keeps_its_best(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its perplexities: 9 within the first epoch, then ever more; the vocabulary has 12 pieces."""
    wild = iter([9.0, 1e3, 1e60, 7.1e145, 8e150, 9e200])
    monkeypatch.setattr(loss, "perplexity", lambda *_: next(wild))
    monkeypatch.setattr(Meter, "since_checkpoint", lambda self: 1e9)
    run = tmp_path / "run"
    with caplog.at_level(logging.INFO), pytest.raises(UserError) as error:
        tiny.train(run, data)
    assert error.value.code == Exit.DIVERGED
    assert str(error.value) == (
        "step 8: the dev perplexity, 7.1e+145, has grown or stayed far above its lowest, 9, at 3 "
        "checkpoints in a row, and is worse than guessing (12, the size of the vocabulary); "
        "training diverged; the last checkpoint is intact; try a lower optim.lr with another name="
    )
    assert caplog.text.count("worse than guessing (12, the size of the vocabulary); if it") == 1
    assert (
        "dev perplexity 7.1e+145" in caplog.text
        and "000000000" not in caplog.text.split("at 0x")[0]
    )
    assert (run / "best").read_bytes() == b"step-00000002\n"
    assert {path.name for path in (run / "checkpoints").iterdir()} == {
        *("step-00000002", "step-00000004", "step-00000006")
    }
    caplog.clear()
    wild = iter([7.1e145])
    with pytest.raises(UserError, match=r"step 8: the dev perplexity, 7\.1e\+145, has grown"):
        tiny.train(run, data)  # the same command again comes to the same end
    assert "guessing" not in caplog.text.split("failed:")[0]  # it has been said


@pytest.mark.slow
def test_a_rate_that_is_far_too_high_is_told_and_stops(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="training diverged") as error:
        tiny.train(tmp_path / "run", data, optim__lr=3.0, trainer__max_epochs=40)
    assert error.value.code == Exit.DIVERGED
    assert caplog.text.count("if it keeps growing, training stops; try a lower optim.lr") == 1


def test_half_of_a_training_of_less_than_an_epoch_is_watched(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wild = iter([20.0, 1e3, 1e4, 1e5, 1e6])
    monkeypatch.setattr(loss, "perplexity", lambda *_: next(wild))
    monkeypatch.setattr(Meter, "since_checkpoint", lambda self: 1e9)
    often = {"trainer__checkpoints_per_epoch": 16, "trainer__batch_tokens": 30}
    with pytest.raises(UserError, match=r"step 4: the dev perplexity, 1e\+05, has grown"):
        tiny.train(tmp_path / "run", data, trainer__max_steps=5, **often)


def test_learning_by_heart_is_told_and_goes_on(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The vocabulary has 12 pieces."""
    grows = (9.0 * 3**number for number in count())
    monkeypatch.setattr(loss, "perplexity", lambda *_: next(grows))
    monkeypatch.setattr(Meter, "since_checkpoint", lambda self: 1.5)
    assert tiny.train(tmp_path / "run", data, trainer__max_epochs=4).code == Exit.OK
    assert caplog.text.count("more data, or dropout, may help") == 1


@pytest.mark.slow
def test_a_corpus_that_is_learnt_by_heart_ends_no_training(
    data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {**NO_DROPOUT, "optim__label_smoothing": 0.0, "optim__patience": 1000}
    outcome = tiny.train(tmp_path / "run", data, trainer__max_epochs=50, **changes)
    assert outcome.code == Exit.OK
    assert caplog.text.count("more data, or dropout, may help") == 1
