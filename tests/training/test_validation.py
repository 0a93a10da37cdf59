"""What decides on a checkpoint: translations of development text; early stopping, kept bests."""

import re
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from nmt import modeldir
from nmt.corpus.prepare import Prepared
from nmt.decode.translator import Translator
from nmt.modeldir import checkpoints
from nmt.training.schedule import Stalls, stops_early
from nmt.training.validation import dev_score
from tests.training import tiny


def scores(patch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Let the checkpoints have these scores, one after the other; the last one for ever."""
    remaining = iter(values)
    patch.setattr("nmt.training.validation.dev_score", lambda *_: next(remaining, values[-1]))


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_score_is_that_of_greedy_translations(metric: str, data: Prepared, whole: Path) -> None:
    changes = {"trainer__dev_metric": metric, "trainer__dev_lines": 7}
    trained = modeldir.load(whole)
    settings = tiny.settings(**changes, decode__max_length_offset=20)
    random = torch.get_rng_state()
    found = dev_score(trained.model, settings, data)
    assert trained.model.training and torch.equal(random, torch.get_rng_state())
    trained.model.eval()
    pairs = [data.dev.pair(i) for i in range(7)]
    sources, references = (
        [data.target.text(ids.tolist()[:-1]) for ids in side] for side in zip(*pairs, strict=True)
    )
    outputs = Translator.of(trained, settings.decode).texts(sources)
    score = sacrebleu.corpus_bleu if metric == "bleu" else sacrebleu.corpus_chrf
    assert found == pytest.approx(score(outputs, [references]).score)
    whole_text = dev_score(trained.model, tiny.settings(trainer__dev_metric=metric), data)
    assert whole_text != found


def test_what_restricts_a_search_changes_no_score(data: Prepared, whole: Path) -> None:
    """A run that is resumed may have it otherwise."""
    changes = {"trainer__dev_metric": "bleu", "trainer__dev_lines": 7}
    restricted = {"no_repeat_ngram": 1, "min_length_ratio": 1.5, "unknown": "allow"}
    model = modeldir.load(whole).model
    decode = {f"decode__{key}": value for key, value in restricted.items()}
    assert dev_score(model, tiny.settings(**changes, **decode), data) == dev_score(
        model, tiny.settings(**changes), data
    )


def test_it_decides_on_the_best_and_the_rate(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scores(monkeypatch, [10.0, 30.0, 20.0, 5.0])
    with caplog.at_level("INFO", "nmt"):
        outcome = tiny.train(tmp_path / "run", data, trainer__dev_metric="bleu")
    assert re.search(r"dev perplexity [\d.]+, dev bleu 30\n", caplog.text)
    lines = tiny.lines(tmp_path / "run", "dev")
    assert [line["bleu"] for line in lines][:4] == [10.0, 30.0, 20.0, 5.0]
    assert (outcome.best, outcome.metric) == (30.0, "bleu")
    assert str(outcome).endswith("best dev bleu 30")
    best = (tmp_path / "run/best").read_text().strip()
    assert best == f"step-{lines[1]['step']:08d}"
    rates = [line["lr"] for line in lines]  # patience 1: each checkpoint that is no better halves
    assert rates[:5] == [0.01, 0.01, 0.01, 0.005, 0.0025]


def test_of_equal_scores_the_lowest_perplexity_is_best(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores(monkeypatch, [30.0])
    outcome = tiny.train(tmp_path / "run", data, trainer__dev_metric="bleu", optim__lr=0.03)
    lines = tiny.lines(tmp_path / "run", "dev")
    lowest = min(lines, key=lambda line: (line["perplexity"], line["step"]))
    assert outcome.best == 30.0 and lowest["step"] > lines[0]["step"]
    assert (tmp_path / "run/best").read_text() == f"step-{lowest['step']:08d}\n"


def test_the_best_are_kept_and_found_again(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trainer__dev_metric": "chrf", "trainer__keep_best": 3}
    scores(monkeypatch, [9.0, 50.0, 8.0, 40.0, 30.0, 1.0])
    with monkeypatch.context() as patch:
        tiny.stop_after(patch, 9)
        tiny.train(tmp_path / "run", data, **changes)
    tiny.train(tmp_path / "run", data, **changes)
    steps = [line["step"] for line in tiny.lines(tmp_path / "run", "dev")]
    kept = {int(path.name[5:]) for path in checkpoints(tmp_path / "run/checkpoints")}
    assert kept == {steps[1], steps[3], steps[4], steps[5]}  # 2 newest, of which one is among them


def test_a_run_ends_without_a_new_best_and_stays_ended(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"trainer__dev_metric": "bleu", "trainer__early_stopping": 2}
    scores(monkeypatch, [10.0, 30.0, 29.0, 20.0, 40.0, 35.0])
    run = tmp_path / "run"
    outcome = tiny.train(run, data, **changes)
    assert len(tiny.lines(run, "dev")) == 4
    for ended in (outcome, tiny.train(run, data, **changes)):
        assert ended.early and "by trainer.early_stopping, best dev bleu 30" in str(ended)
    again = tiny.train(run, data, **changes)
    assert again.already_finished and again.step == outcome.step
    scores(monkeypatch, [40.0, 35.0])
    longer = tiny.train(run, data, **{**changes, "trainer__early_stopping": 3})
    assert longer.step > outcome.step and longer.best == 40.0
    whole = tmp_path / "whole"
    scores(monkeypatch, [10.0, 30.0, 29.0, 20.0, 40.0, 35.0])
    tiny.train(whole, data, **{**changes, "trainer__early_stopping": 3})
    newest = [checkpoints(each / "checkpoints")[-1] / "model.safetensors" for each in (run, whole)]
    assert tiny.digest(newest[0]) == tiny.digest(newest[1])


def test_zero_patience_never_ends() -> None:
    stalls = Stalls()
    for cost in (1.0, 2.0, 3.0):
        stalls.observe([cost])
    ended = [
        stops_early(stalls.stalled, tiny.settings(trainer__early_stopping=patience).trainer)
        for patience in range(5)
    ]
    assert ended == [False, True, True, False, False]


def test_the_average_is_translated(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []

    def look(model: torch.nn.Module, *_: Any) -> float:
        seen.append(next(model.parameters()).detach().clone())
        return 1.0

    monkeypatch.setattr("nmt.training.validation.dev_score", look)
    tiny.train(
        tmp_path / "run", data, trainer__dev_metric="bleu", trainer__ema=0.5, trainer__max_steps=3
    )
    saved = modeldir.load(checkpoints(tmp_path / "run/checkpoints")[-1])
    assert torch.equal(seen[-1], next(saved.model.parameters()))
