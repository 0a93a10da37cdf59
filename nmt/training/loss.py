"""Label-smoothed cross-entropy, and the perplexity that decides on a checkpoint."""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.data.batches import Batch
from nmt.data.vocab import EOS, PAD
from nmt.machine.device import pinned
from nmt.model.transformer import Hidden, Transformer
from nmt.training.crossentropy import CrossEntropy
from nmt.training.distributed import SINGLE, World


class Ready(NamedTuple):
    """A batch as the host hands it to the model: what is read, and what is to be predicted.

    All that depends on which tokens are padding is found here, and lies where a GPU can copy it
    from without the host waiting.
    """

    source: Tensor  # [batch, source] ids
    read: Tensor  # [batch, target] ids, BOS ..., without EOS
    columns: dict[str, Tensor]  # [batch, source | 1] each
    expected: Tensor  # [tokens] ids that are to be predicted: target pieces and one EOS per row
    real: Tensor  # [tokens] where they stand among [batch x target]
    lines: list[int]  # [batch] see `nmt.data.batches.Batch`
    counts: bool = True  # false: another rank's, gone through for the sum of gradients alone

    @property
    def tokens(self) -> int:
        """How many of an update's tokens it predicts."""
        return len(self.expected) if self.counts else 0


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


def ready(batch: Batch, device: torch.device) -> Ready:
    """Make a batch ready for `predict` on a device.

    Padding is left out before the projection onto the vocabulary, which is most of the work.
    """
    expected = batch.target[:, 1:].flatten()
    real = expected.ne(PAD).nonzero().squeeze(1)  # found on the CPU: no wait for the GPU
    before = batch.target[:, :-1]
    read = before.masked_fill(before == EOS, PAD)  # eos is predicted and never read
    source, read, expected, real = (
        pinned(t, device) for t in (batch.source, read, expected[real], real)
    )
    columns = {name: pinned(values, device) for name, values in batch.columns.items()}
    return Ready(source, read, columns, expected, real, batch.lines)


def predict(run: Callable[..., Hidden], batch: Ready, device: torch.device) -> Predicted:
    """Return the states that predict a batch's real target tokens, and their ids.

    `run`: `Transformer.hidden` of a model.
    """
    source, read, expected, real = (
        t.to(device, non_blocking=True)
        for t in (batch.source, batch.read, batch.expected, batch.real)
    )
    columns = {name: t.to(device, non_blocking=True) for name, t in batch.columns.items()}
    hidden = run(source, read, columns)
    states = hidden.states.flatten(0, 1)  # [batch x target, dim]
    return Predicted(states[real], expected, hidden.side_loss)


def perplexity(
    model: Transformer,
    batches: Iterable[Batch],
    device: torch.device,
    autocast: AbstractContextManager[None],
    world: World = SINGLE,
) -> float:
    """Return exp of the mean negative log-likelihood per token, eos included, unsmoothed.

    The ranks share the batches, and all get the same result.
    Dropout is off meanwhile, and no random number that training would get is used up.
    """
    total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    gpus = [device] if device.type == "cuda" else []
    model.eval()
    try:
        with torch.random.fork_rng(gpus), torch.no_grad(), autocast:
            for batch in world.shard(batches):
                states, expected, _ = predict(model.hidden, ready(batch, device), device)
                _, likelihoods = smoothed(states, model.output, expected, 0.0)
                total += likelihoods.double().sum()
                tokens += len(expected)
    finally:
        model.train()
    sums = torch.tensor([float(total), tokens], dtype=torch.float64)
    nll, count = world.all_reduce(sums).tolist()
    mean = nll / count
    return math.exp(mean) if mean < 700 else math.inf  # exp(710) is no float
