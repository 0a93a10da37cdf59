"""Small models with made-up sentences, to be tried live: in one pass, or with a cache."""

from typing import NamedTuple

import torch
from torch import Tensor

from nmt import build
from nmt.checks import example
from nmt.checks.example import Sentences
from nmt.checks.invariance import shifted
from nmt.config.settings import Settings
from nmt.encodings.base import at_least_float32
from nmt.model.transformer import PAD, Transformer


def perturbed(settings: Settings) -> Transformer:
    """A model in eval mode with every parameter away from where it starts.

    Raises UserError as `build.transformer` does.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build.transformer(settings, example.VOCAB, example.VOCAB)
        example.perturb(model, settings.model.dim)
    return model.eval()


class Specimen(NamedTuple):
    """A small model in eval mode and a batch for it."""

    model: Transformer
    text: Sentences


def small(settings: Settings) -> Specimen:
    """The settings' encoding in a model of 16 dimensions, or of its own width where it must.

    Raises UserError as `build.transformer` does.
    """
    model = perturbed(build.shrunken(settings))
    with shifted(model.entries):
        source, target = example.within(model, 11, 20)  # as many as tables hold behind a shift
    return Specimen(model, example.sentences(model, (max(1, source - 3), source), (target, target)))


@torch.no_grad()
def full_pass(model: Transformer, text: Sentences) -> Tensor:
    """The logits [rows, target, vocab] of one causal pass."""
    return at_least_float32(model(text.source, text.target, text.columns))


class Decoding:
    """Hypotheses that grow with a cache, and the logits on their way."""

    def __init__(self, model: Transformer, text: Sentences) -> None:
        self.model, self.text, self.done = model, text, 0
        lengths = (text.target != PAD).sum(1) if model.needs_lengths else None
        self.state = model.start(text.source, text.columns, lengths)
        self._logits: list[Tensor] = []  # [rows, n, vocab] each

    @property
    def logits(self) -> Tensor:
        """Those of all tokens so far [rows, done, vocab]."""
        return torch.cat(self._logits, 1)

    def grow(self, end: int, together: bool = False) -> None:
        """Read the target up to `end`, token by token or in one go."""
        while self.done < end:
            tokens = self.text.target[:, self.done : end if together else self.done + 1]
            states = self.model.advance(tokens, self.state)
            self._logits.append(at_least_float32(self.model.logits(states)))
            self.done += tokens.shape[1]

    def reorder(self, rows: list[int]) -> None:
        """Row i becomes old row rows[i]; from here on every row gets tokens of its own."""
        chosen = torch.tensor(rows, device=self.text.target.device)
        self.state.reorder(chosen)
        self._logits = [self.logits[chosen]]
        self.text = self.text.take(chosen)
        rest = self.text.target[:, self.done :]
        other = example.random_ids(self.model, len(rows), rest.shape[1], seed=self.done)
        rest.copy_(other.where(rest != PAD, rest))
