"""One update at a time: accumulation, clipping, non-finite gradients, refusals."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.corpus.prepare import Prepared
from nmt.errors import Exit, UserError
from nmt.training import feed, loss
from nmt.training.directory import open_run
from nmt.training.reports import MetricsLog
from nmt.training.trainer import Trainer
from tests.training import tiny

Make = Callable[..., Trainer]


@pytest.fixture
def trainer(data: Prepared, tmp_path: Path) -> Iterator[Make]:
    """Trainers that are ready for `update`, in directories of their own."""
    with ExitStack() as stack:
        numbers = itertools.count()

        def make(**changes: Any) -> Trainer:
            path = tmp_path / f"run{next(numbers)}"
            run = stack.enter_context(open_run(path, tiny.settings(**changes)))
            made = Trainer(data, run)
            made.progress = stack.enter_context(MetricsLog(path, 0, made.last, made.options))
            return made

        yield make


def parameters(trainer: Trainer) -> list[Tensor]:
    return [p.detach().clone() for p in trainer.parameters]


def gradient(trainer: Trainer, batches: list[Any]) -> Tensor:
    trainer.model.eval()  # no dropout
    trainer.optimizer.zero_grad()
    ready = [feed.to_device(batch, trainer.device) for batch in batches]
    trainer.backward(ready, sum(batch.tokens for batch in ready))
    return torch.cat([p.grad.flatten() for p in trainer.parameters if p.grad is not None])


def test_the_gradient_is_that_of_the_mean_loss_per_token(trainer: Make) -> None:
    made = trainer()
    (batch,) = made.batches.batch(0, 0)
    found = gradient(made, [batch])
    made.optimizer.zero_grad()
    logits = made.model(batch.source, batch.target[:, :-1]).flatten(0, 1)
    torch.nn.functional.cross_entropy(
        logits, batch.target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1
    ).backward()
    expected = torch.cat([p.grad.flatten() for p in made.parameters if p.grad is not None])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_clipping(clip: float, trainer: Make) -> None:
    """The norm that is reported is that before clipping, and Adam's first moment that after it."""
    made = trainer(optim__clip=clip)
    made.update()
    moments = [state["exp_avg"].flatten() for state in made.optimizer.state.values()]
    norm = torch.cat(moments).norm().item() / (1 - made.optim.beta1)
    assert made.meter.norm > 0.1
    assert norm == pytest.approx(clip or made.meter.norm, rel=1e-4)


def test_a_non_finite_gradient_makes_no_update(trainer: Make) -> None:
    made = trainer(trainer__accumulate=1)
    made.update()
    before, moments = parameters(made), made.optimizer.state_dict()["state"]
    steps = [float(each["step"]) for each in moments.values()]
    hook = made.model.output.weight.register_hook(lambda grad: grad * float("inf"))
    made.update()
    assert all(map(torch.equal, parameters(made), before))
    assert [float(e["step"]) for e in made.optimizer.state_dict()["state"].values()] == steps
    assert all(p.grad is None for p in made.parameters)
    (skipped,) = tiny.lines(made.run.path, "skipped")
    (batch,) = made.batches.batch(0, 1)
    assert (skipped["step"], skipped["lr"], skipped["lines"]) == (2, 0.01, batch.lines)
    assert made.nonfinite == 1
    hook.remove()
    made.update()
    assert made.nonfinite == 0  # one good update, and patience is whole again


def test_non_finite_updates_in_a_row_end_training_with_70(
    data: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = tmp_path / "run", iter(range(1, 99))

    def poisoned(module: object, inputs: object, output: Any) -> Any:
        bad = next(calls) in (2, 4, 5)  # not two in a row before step 5
        return tuple(each * float("nan") for each in output) if bad else None

    tiny.at_module(monkeypatch, loss.Objective, poisoned)
    with pytest.raises(UserError, match="step 5: 2 updates in a row were not finite") as error:
        tiny.train(run, data, trainer__accumulate=1, trainer__nonfinite_patience=2)
    assert error.value.code == Exit.DIVERGED
    saved = tiny.newest(run)
    before = tiny.tree(saved)
    opened = tiny.reopen(run, trainer__accumulate=1)  # it passes verification
    assert opened.saved is not None and opened.saved.path == saved
    assert tiny.tree(saved) == before


@pytest.mark.parametrize("faster", [True, False])
def test_bfloat16_is_used_where_it_is_chosen_and_faster(
    faster: bool, trainer: Make, pretend: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    pretend(trains_in_bfloat16=faster)
    lower = torch.bfloat16 if faster else torch.float32
    for precision, dtype in (("bfloat16", lower), ("auto", torch.float32)):
        made = trainer(trainer__precision=precision)
        seen: list[Tensor] = []
        inner = made.model.get_submodule("encoder.layers.0.feedforward.inner")
        inner.register_forward_hook(lambda module, args, result, to=seen: to.append(result))
        made.update()
        assert {result.dtype for result in seen} == {dtype}
        assert made.parameters[0].dtype == torch.float32
    message = "trainer.precision=bfloat16: not faster than float32 on this CPU: float32 is used"
    assert [m for m in caplog.messages if "precision" in m] == [message] * (not faster)


def test_an_integer_of_a_column_beyond_the_table_is_named(data: Prepared, tmp_path: Path) -> None:
    data = data._replace(train=copy(data.train), dev=copy(data.dev))
    for store in (data.train, data.dev):
        store.per, store.columns = {"language": "sentence"}, {"language": np.zeros(64, np.int32)}
    data.dev.columns["language"][5] = 7
    own = {"per_language": {"where": "encoder", "longest": 20, "languages": 3}}
    with pytest.raises(UserError, match=r"data.dev: column 'language' has 7, .* holds 0 to 2"):
        tiny.train(tmp_path / "run", data, encoding=own)


@pytest.mark.parametrize("early_stopping", [0, 9])
def test_a_perplexity_that_rises_beyond_the_vocabulary_is_a_warning_without_early_stopping(
    early_stopping: int, data: Prepared, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A rate that is far too high; the vocabulary has 12 pieces. The first has none before it."""
    changes = {"optim__lr": 3.0, "trainer__early_stopping": early_stopping}
    tiny.train(tmp_path / "run", data, **changes, trainer__max_steps=4)
    perplexities = [line["perplexity"] for line in tiny.lines(tmp_path / "run", "dev")]
    assert perplexities[0] > 12
    rising = [p for i, p in enumerate(perplexities) if i and p > max(12, min(perplexities[:i]))]
    warned = caplog.text.count("guessing (12, the size of the vocabulary)")
    assert rising and warned == (0 if early_stopping else len(rising))
