"""Losses against double loops; perplexity whatever the batches."""

import contextlib
import math
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nmt import build
from nmt.corpus.batches import in_order
from nmt.corpus.prepare import Prepared
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD
from nmt.training import feed, loss, validation
from tests.training import tiny

CPU = torch.device("cpu")


@pytest.fixture
def model(data: Prepared) -> Transformer:
    torch.manual_seed(5)
    size = len(data.source.vocabulary)
    return build.transformer(tiny.settings(), size, size)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothed_is_the_double_loop(smoothing: float) -> None:
    torch.manual_seed(0)
    hidden, output = torch.randn(5, 4, requires_grad=True), nn.Linear(4, 7)
    target = torch.tensor([0, 6, 3, 3, 1])
    logits = output(hidden).detach().double()
    total, likelihoods = 0.0, []
    for i in range(5):
        log_probs = logits[i].log_softmax(0)
        for v in range(7):
            q = smoothing / 7 + (1 - smoothing) * (v == target[i])
            total -= float(q * log_probs[v])
        likelihoods.append(-float(log_probs[target[i]]))
    found, nll = loss.smoothed_loss(hidden, output, target, smoothing)
    assert math.isclose(found.item(), total, rel_tol=1e-6)
    torch.testing.assert_close(nll, torch.tensor(likelihoods))
    assert found.requires_grad and not nll.requires_grad


@pytest.mark.parametrize("tokens", [1, 6, 23])  # at once: 6, an even number
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradients_of_the_loss_are_those_of_autograd(
    tokens: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss, "LEAST_TOKENS", 2)
    monkeypatch.setattr(loss, "MULTIPLE", 2)
    monkeypatch.setitem(loss.LOGITS_AT_ONCE, "cpu", 6 * 11)
    torch.manual_seed(1)
    output, start = nn.Linear(8, 11), torch.randn(tokens, 8)
    target = torch.randint(11, (tokens,))
    found = []
    for chunked in (True, False):
        hidden = start.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            if chunked:
                value, _ = loss.smoothed_loss(hidden, output, target, 0.1)
            else:
                value = F.cross_entropy(
                    output(hidden).float(), target, reduction="sum", label_smoothing=0.1
                )
        output.zero_grad()
        (value / 3).backward()
        found.append([value.detach(), hidden.grad, output.weight.grad, output.bias.grad])
    rtol, atol = (1e-5, 1e-6) if precision == "float32" else (0.02, 0.01)
    for mine, plain in zip(*found, strict=True):
        torch.testing.assert_close(mine, plain, rtol=rtol, atol=atol)


def test_predict_gives_the_real_tokens_row_by_row(data: Prepared, model: Transformer) -> None:
    model.eval()
    batch = next(in_order(data.train, 300, "max"))
    ready = feed.to_device(batch, CPU)
    states = loss.target_states(model.hidden, ready)
    whole = model(batch.source, batch.target[:, :-1])
    kept = [
        (whole[row, at], batch.target[row, at + 1])
        for row in range(len(batch.source))
        for at in range(batch.target.shape[1] - 1)
        if batch.target[row, at + 1] != PAD
    ]
    assert torch.equal(ready.labels, torch.stack([token for _, token in kept]))
    torch.testing.assert_close(model.logits(states), torch.stack([row for row, _ in kept]))


def test_perplexity_is_a_mean_over_tokens_whatever_the_batches(
    data: Prepared, model: Transformer
) -> None:
    likelihood, tokens = 0.0, 0
    model.eval()
    for i in range(len(data.dev)):
        source, target = (torch.tensor([side.tolist()]) for side in data.dev.pair(i))
        prefix = torch.cat([torch.tensor([[1]]), target[:, :-1]], 1)
        log_probs = model(source, prefix).double().log_softmax(-1)
        likelihood -= float(log_probs[0].gather(1, target[0][:, None]).sum().detach())
        tokens += target.shape[1]
    for budget in (1, 10_000):
        found = validation.perplexity(
            model, in_order(data.dev, budget, "max"), CPU, contextlib.nullcontext()
        )
        assert math.isclose(found, math.exp(likelihood / tokens), rel_tol=1e-5)


def test_looking_uses_no_random_number_and_leaves_dropout_on(
    data: Prepared, model: Transformer
) -> None:
    def batches() -> Iterator[object]:
        torch.rand(3)  # as an encoding with random positions would
        yield from in_order(data.dev, 100, "max")

    before = torch.get_rng_state()
    validation.perplexity(model, batches(), CPU, contextlib.nullcontext())  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
