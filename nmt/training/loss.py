"""Label-smoothed cross-entropy, and the perplexity that decides on a checkpoint."""

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.data.batches import Batch
from nmt.data.vocab import EOS, PAD
from nmt.model.transformer import Transformer
from nmt.training.crossentropy import CrossEntropy
from nmt.training.workers import ALONE, Workers


class Predicted(NamedTuple):
    """What a pass says of the real target tokens of a batch."""

    states: Tensor  # [tokens, dim], of which the vocabulary's logits are made
    expected: Tensor  # [tokens] ids
    side_loss: Tensor | None  # see `nmt.model.transformer.Hidden`


def smoothed(
    hidden: Tensor, output: nn.Linear, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Project states onto the vocabulary: (label-smoothed loss [], likelihoods [tokens]).

    hidden [tokens, dim], target [tokens] without padding. Szegedy et al. 2016: the true token
    keeps 1 - smoothing, and every token of the vocabulary gets smoothing / vocab. The loss is a
    sum over tokens; the likelihoods are negative logarithms, for reports, and carry no gradient.
    """
    learning = torch.is_grad_enabled()
    return CrossEntropy.apply(hidden, output.weight, output.bias, target, smoothing, learning)


def predict(model: Transformer, batch: Batch, device: torch.device) -> Predicted:
    """Return the states that predict a batch's real target tokens, and their ids.

    Padding is left out before the projection onto the vocabulary, which is most of the work.
    """
    expected = batch.target[:, 1:].flatten()
    real = expected.ne(PAD).nonzero().squeeze(1)  # found on the CPU: no wait for the GPU
    before = batch.target[:, :-1]
    read = before.masked_fill(before == EOS, PAD)  # eos is predicted and never read
    source, target = batch.source.to(device), read.to(device)
    columns = {name: values.to(device) for name, values in batch.columns.items()}
    hidden = model.hidden(source, target, columns)
    states = hidden.states.flatten(0, 1)  # [batch x target, dim]
    return Predicted(states[real.to(device)], expected[real].to(device), hidden.side_loss)


def count(batch: Batch) -> int:
    """Count the tokens that a batch asks to predict: its target pieces and one eos per row."""
    return int(batch.target[:, 1:].ne(PAD).sum())


def perplexity(
    model: Transformer,
    batches: Iterable[Batch],
    device: torch.device,
    autocast: AbstractContextManager[None],
    workers: Workers = ALONE,
) -> float:
    """Return exp of the mean negative log-likelihood per token, eos included, unsmoothed.

    The workers share the batches, and all get the same result.
    Dropout is off meanwhile, and no random number that training would get is used up.
    """
    total, tokens = 0.0, 0
    gpus = [device] if device.type == "cuda" else []
    model.eval()
    try:
        with torch.random.fork_rng(gpus), torch.no_grad(), autocast:
            for batch in workers.deal(batches):
                states, expected, _ = predict(model, batch, device)
                _, likelihoods = smoothed(states, model.output, expected, 0.0)
                total += float(likelihoods.double().sum())
                tokens += len(expected)
    finally:
        model.train()
    mean = workers.total(total) / workers.total(tokens)
    return math.exp(mean) if mean < 700 else math.inf  # exp(710) is no float
