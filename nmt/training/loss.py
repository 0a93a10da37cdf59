"""Label-smoothed cross-entropy, and the perplexity that decides on a checkpoint."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.corpus.batches import Batch
from nmt.machine import device as devices
from nmt.model.transformer import Transformer
from nmt.text.vocab import EOS, PAD
from nmt.training import compilation
from nmt.training.crossentropy import CrossEntropy
from nmt.training.distributed import SINGLE, World


class DeviceBatch(NamedTuple):
    """A batch on the device: what the model reads, and what it is to predict."""

    source: Tensor  # [batch, source] ids
    prefix: Tensor  # [batch, target] ids, BOS ..., without EOS
    columns: dict[str, Tensor]  # [batch, source | 1] each
    labels: Tensor  # [tokens] ids to predict: target pieces and one EOS per row, no padding
    indices: Tensor  # [tokens] of the labels among [batch x target]
    pairs: Sequence[int] = ()  # see `nmt.corpus.batches.Batch`
    counted: bool = True  # false: another rank's, gone through for the sum of gradients alone
    position: Sequence[int] = ()  # number of the batch in its update, and of the part of that

    @property
    def tokens(self) -> int:
        """How many of an update's tokens it predicts."""
        return len(self.labels) if self.counted else 0

    @property
    def counts(self) -> list[int]:
        """The same, and its pairs of each corpus."""
        return [self.tokens, *(n * self.counted for n in self.pairs)]


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Move a batch to a device, without waiting for it.

    Padding is left out before the projection onto the vocabulary, which is most of the work. Which
    tokens are padding is decided on the CPU: a GPU would make the host wait for its answer.
    """
    moved = partial(devices.to_device, device=device)
    labels, prefix = batch.target[:, 1:].flatten(), batch.target[:, :-1]
    indices = labels.ne(PAD).nonzero().squeeze(1)
    return DeviceBatch(
        source=moved(batch.source),
        prefix=moved(prefix.masked_fill(prefix == EOS, PAD)),  # EOS is predicted and never read
        columns={name: moved(values) for name, values in batch.columns.items()},
        labels=moved(labels[indices]),
        indices=moved(indices),
        pairs=batch.pairs,
    )


def halves(batch: Batch) -> list[Batch]:
    """The batch in two of half as many pairs; in one, where it has a single pair."""
    middle = len(batch.source) // 2
    return [
        batch._replace(
            source=batch.source[part],
            target=batch.target[part],
            lines=batch.lines[part],
            columns={name: values[part] for name, values in batch.columns.items()},
        )
        for part in ([slice(middle), slice(middle, None)] if middle else [slice(None)])
    ]


def predict(hidden: Callable[..., Tensor], batch: DeviceBatch) -> Tensor:
    """Return the states that predict a batch's labels [tokens, dim].

    `hidden`: `Transformer.hidden` of a model, or the same compiled.
    """
    states = hidden(batch.source, batch.prefix, batch.columns)
    return states.flatten(0, 1)[batch.indices]


def smoothed(
    states: Tensor, output: nn.Linear, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Project states onto the vocabulary: (label-smoothed loss [], likelihoods [tokens]).

    states [tokens, dim], labels [tokens] without padding. Szegedy et al. 2016: the true token
    keeps 1 - smoothing, and every token of the vocabulary gets smoothing / vocab. The loss is a
    sum over tokens; the likelihoods are negative logarithms, for reports, and carry no gradient.
    """
    learning = torch.is_grad_enabled()
    return CrossEntropy.apply(states, output.weight, output.bias, labels, smoothing, learning)


class Objective(nn.Module):
    """The label-smoothed loss of a model as one module, so that torch can sum its gradients.

    It has no parameters of its own. compiled: torch compiles the pass through the model at its
    first batch, for all lengths and numbers of sentences; dropout then draws other random numbers.
    """

    def __init__(self, model: Transformer, smoothing: float, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing
        self.hidden = compilation.compiled(model.hidden) if compiled else model.hidden

    def forward(self, batch: DeviceBatch, tokens: float) -> tuple[Tensor, Tensor]:
        """Return a batch's loss [], divided by `tokens`, and its sums [2] without gradient.

        The sums are those of smoothed loss and negative log-likelihood over the batch.
        """
        states = predict(self.hidden, batch)
        loss, likelihoods = smoothed(states, self.model.output, batch.labels, self.smoothing)
        sums = torch.stack((loss.detach(), likelihoods.sum()))
        if not batch.counted:
            loss, sums = loss * 0, sums * 0
        return loss / tokens, sums


def perplexity(
    model: Transformer,
    batches: Iterable[Batch],
    device: torch.device,
    autocast: AbstractContextManager[None],
    world: World = SINGLE,
) -> float:
    """Return exp of the mean negative log-likelihood per token, EOS included, unsmoothed.

    The ranks share the batches, and all get the same result. There is no dropout, and the random
    numbers that training will draw stay the same.
    """
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    gpus = [device] if device.type == "cuda" else []
    model.eval()
    try:
        with torch.random.fork_rng(gpus), torch.no_grad(), autocast:
            for on_host in world.shard(batches):
                batch = to_device(on_host, device)
                states = predict(model.hidden, batch)
                _, likelihoods = smoothed(states, model.output, batch.labels, 0.0)
                total += likelihoods.double().sum()
                tokens += len(batch.labels)
    finally:
        model.train()
    sums = torch.tensor([float(total), tokens], dtype=torch.float64)
    nll, count = world.all_reduce(sums).tolist()
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf  # exp(710) is no float
