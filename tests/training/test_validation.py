"""What decides on a checkpoint: translations of development text; early stopping, kept bests."""

import re
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu
import torch

from nmt import modeldir
from nmt.corpus.prepare import Prepared
from nmt.decode.translator import Translator
from nmt.modeldir import checkpoints
from nmt.training.validation import dev_score
from tests.training import tiny

BLEU = {"trainer__dev_metric": "bleu", "trainer__dev_lines": 2}


def scores(patch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Let sacreBLEU find these scores, one after the other; the last one for ever."""
    remaining = chain(values, repeat(values[-1]))
    scorer = SimpleNamespace(corpus_score=lambda *_: SimpleNamespace(score=next(remaining)))
    patch.setattr("sacrebleu.BLEU", lambda **_: scorer)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_score_is_that_of_greedy_translations(metric: str, data: Prepared, whole: Path) -> None:
    """What restricts a search changes none, as a run that is resumed may have it otherwise."""
    changes = {"trainer__dev_metric": metric, "trainer__dev_lines": 7}
    trained = modeldir.load(whole)
    settings = tiny.settings(**changes, decode__max_length_offset=20)
    random = torch.get_rng_state()
    found = dev_score(trained.model, settings, data)
    assert trained.model.training and torch.equal(random, torch.get_rng_state())
    restricted = {"no_repeat_ngram": 1, "min_length_ratio": 1.5, "unknown": "allow"}
    decode = {f"decode__{key}": value for key, value in restricted.items()}
    assert dev_score(trained.model, tiny.settings(**changes, **decode), data) == found
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


def test_it_decides_on_the_bests_that_are_kept_and_on_the_rate(
    data: Prepared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where the run is stopped between."""
    scores(monkeypatch, [10.0, 50.0, 8.0, 40.0, 30.0, 1.0])
    changes = {**BLEU, "trainer__keep_best": 3}
    with monkeypatch.context() as patch, caplog.at_level("INFO", "nmt"):
        tiny.stop_after(patch, 9)
        tiny.train(tmp_path / "run", data, **changes)
    outcome = tiny.train(tmp_path / "run", data, **changes)
    assert re.search(r"dev perplexity [\d.]+, dev bleu 50\n", caplog.text)
    lines = tiny.lines(tmp_path / "run", "dev")
    assert [line["bleu"] for line in lines] == [10.0, 50.0, 8.0, 40.0, 30.0, 1.0]
    assert (outcome.best, outcome.metric) == (50.0, "bleu")
    assert str(outcome).endswith("best dev bleu 50")
    steps = [line["step"] for line in lines]
    assert (tmp_path / "run/best").read_text() == f"step-{steps[1]:08d}\n"
    kept = {int(path.name[5:]) for path in checkpoints(tmp_path / "run/checkpoints")}
    assert kept == {steps[1], steps[3], steps[4], steps[5]}  # 2 newest, of which one is among them
    rates = [line["lr"] for line in lines]  # patience 1: each checkpoint that is no better halves
    assert rates[:5] == [0.01, 0.01, 0.01, 0.005, 0.0025]


def test_of_equal_scores_the_lowest_perplexity_is_best(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores(monkeypatch, [30.0])
    outcome = tiny.train(tmp_path / "run", data, **BLEU, optim__lr=0.03, trainer__max_epochs=2)
    lines = tiny.lines(tmp_path / "run", "dev")
    lowest = min(lines, key=lambda line: (line["perplexity"], line["step"]))
    assert outcome.best == 30.0 and lowest["step"] > lines[0]["step"]
    assert (tmp_path / "run/best").read_text() == f"step-{lowest['step']:08d}\n"


def test_a_run_ends_without_a_new_best_and_stays_ended(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    changes = {**BLEU, "trainer__early_stopping": 2}
    longer = {**changes, "trainer__early_stopping": 3, "trainer__max_steps": 10}
    scores(monkeypatch, [10.0, 30.0, 29.0, 20.0, 40.0])
    outcome = tiny.train(run, data, **changes)
    assert len(tiny.lines(run, "dev")) == 4
    again = tiny.train(run, data, **changes)
    for ended in (outcome, again):
        assert ended.early and "by trainer.early_stopping, best dev bleu 30" in str(ended)
    assert again.already_finished and again.step == outcome.step
    resumed = tiny.train(run, data, **longer)
    assert resumed.step > outcome.step and resumed.best == 40.0
    scores(monkeypatch, [10.0, 30.0, 29.0, 20.0, 40.0])
    tiny.train(whole, data, **longer)
    assert tiny.same(run, whole)
