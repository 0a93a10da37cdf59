"""Does decoding with a cache give the logits of one causal pass over the whole target?

It must, whatever the encoding, or translations would not be those of the trained model. Each
condition below decodes in another way that has gone wrong somewhere. The reference is always the
full pass of a fresh copy of the module, so that nothing that decoding leaves behind spoils both.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.checks.example import Sentences, full_pass, random_ids, sentences, within
from nmt.encodings.base import at_least_float32
from nmt.errors import where_raised
from nmt.model.transformer import Transformer
from nmt.text.vocab import PAD

TOKENS = 40  # of the target; a cache doubles its room at 17 and at 35
SOURCE = 12  # tokens of the source

BOUNDS = {
    # 32 units in the last place. Processors sum in other orders: differences were up to 8 of them.
    "float32": 2**-18,
    # Each rounding to the 8 significant bits of bfloat16 moves a number by up to 1/512 of itself.
    # Matrices of other shapes round other sums; as layer norm keeps the states as large as they
    # were, differences add up over some ten rounded results per layer.
    "bfloat16": 1 / 16,
}
"""Largest difference of two logits in each precision, in units of the largest logit."""

Decoded = Iterator[tuple[Tensor, Sentences]]  # logits [rows, target, vocab], and their text
Condition = Callable[[Transformer, int], Decoded]  # decodes so many tokens, by a module of its own


class Decoding:
    """Hypotheses that grow with a cache, and the logits on their way."""

    def __init__(self, model: Transformer, text: Sentences) -> None:
        self.model, self.text, self.done = model, text, 0
        lengths = (text.target != PAD).sum(1) if model.needs_lengths else None
        self.state = model.start(text.source, text.columns, lengths)
        self.logits = text.source.new_empty(0)  # [rows, done, vocab]

    def grow(self, end: int, together: bool = False) -> None:
        """Read the target up to `end`, token by token or in one go.

        What the caches hold beyond their length becomes NaN, so that reading it shows.
        """
        while self.done < end:
            for cache in self.state.self_caches:
                for tensor in cache.tensors:
                    tensor[:, :, cache.length :] = math.nan
            tokens = self.text.target[:, self.done : end if together else self.done + 1]
            states = self.model.advance(tokens, self.state)
            self.logits = torch.cat([self.logits, at_least_float32(self.model.logits(states))], 1)
            self.done += tokens.shape[1]

    def reorder(self, rows: list[list[int]]) -> None:
        """As `State.reorder`; from here on every row gets tokens of its own."""
        groups = torch.tensor(rows, device=self.text.target.device)
        self.state.reorder(groups)
        chosen = groups.flatten()
        self.logits, self.text = self.logits[chosen], self.text.take(chosen)
        rest = self.text.target[:, self.done :]
        other = random_ids(self.model, len(chosen), rest.shape[1], seed=self.done)
        rest.copy_(other.where(rest != PAD, rest))


def make_text(model: Transformer, tokens: int, rows: int = 3, spread: int = 0) -> Sentences:
    """Rows of SOURCE tokens or as many as can be; the target of row i lacks i x spread tokens."""
    source, _ = within(model, SOURCE, tokens)
    targets = [max(1, tokens - row * spread) for row in range(rows)]
    return sentences(model, [source] * rows, targets, seed=1)


def token_by_token(model: Transformer, n: int) -> Decoded:
    """One token at a time, by a module that has computed nothing before."""
    decoding = Decoding(model, make_text(model, n, spread=3))
    decoding.grow(n)
    yield decoding.logits, decoding.text


def after_other_passes(model: Transformer, n: int) -> Decoded:
    """Token by token after full passes of other lengths and batch sizes; then a full pass."""
    longest = min(2 * n, model.target_limit or 2 * n)
    for rows, length in ((5, longest), (1, max(1, n // 4))):
        target = random_ids(model, rows, length, length)
        full_pass(model, make_text(model, n, rows)._replace(target=target))
    decoding = Decoding(model, make_text(model, n))
    decoding.grow(n)
    yield decoding.logits, decoding.text
    yield full_pass(model, decoding.text), decoding.text


def several_at_once(model: Transformer, n: int) -> Decoded:
    """Several tokens in one go, at the start and in the middle."""
    decoding = Decoding(model, make_text(model, n))
    decoding.grow(n // 4, together=True)
    decoding.grow(n // 2)
    decoding.grow(3 * n // 4, together=True)  # several tokens where keys are cached already
    decoding.grow(n)
    yield decoding.logits, decoding.text


def beams(model: Transformer, n: int) -> Decoded:
    """Rows are repeated, swapped, dropped and reordered in the middle."""
    decoding = Decoding(model, make_text(model, n, spread=2))
    decoding.grow(1)
    # Two hypotheses of each sentence, and then two tokens: neither must be taken for the other.
    decoding.reorder([[0, 0], [1, 1], [2, 2]])
    decoding.grow(n // 4)
    decoding.reorder([[1, 0], [3, 3], [5, 4]])  # within each sentence, as beam search does
    decoding.grow(n // 2)
    decoding.reorder([[1, 0, 0], [4, 5, 5]])  # one sentence goes, two have three
    decoding.grow(3 * n // 4)
    decoding.reorder([[2, 1], [5, 3]])
    decoding.grow(n)
    yield decoding.logits, decoding.text


def padding(model: Transformer, n: int) -> Decoded:
    """Rows of a padded batch, decoded and in one pass, compared with each row without padding."""
    longest, _ = within(model, SOURCE, n)
    source = [max(1, length) for length in (longest // 2, longest, longest // 4, longest - 1)]
    text = sentences(model, source, [max(1, n - 3 * row) for row in range(4)], seed=1)
    together = full_pass(copy.deepcopy(model), text)
    decoding = Decoding(model, text)
    decoding.grow(n)
    for row in range(len(source)):
        alone = text.single(row)
        length = alone.target.shape[1]
        yield decoding.logits[row : row + 1, :length], alone
        yield together[row : row + 1, :length], alone


CONDITIONS: dict[str, Condition] = {
    condition.__name__.replace("_", " "): condition
    for condition in (token_by_token, after_other_passes, several_at_once, beams, padding)
}


def compare(condition: str, model: Transformer, tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits [n, vocab] of real tokens, as decoded and of the full pass of a fresh copy."""
    _, tokens = within(model, SOURCE, tokens)
    for logits, text in CONDITIONS[condition](copy.deepcopy(model), tokens):
        real = text.target != PAD
        yield logits[real], full_pass(copy.deepcopy(model), text)[real]


class Deviation(NamedTuple):
    """Decoding in one condition and precision, compared with the full pass."""

    condition: str
    precision: str
    difference: float  # the largest of two logits; NaN if one is not finite
    bound: float
    error: str | None = None  # what was raised instead

    @property
    def passed(self) -> bool:
        return self.difference <= self.bound  # NaN is not

    @property
    def finding(self) -> str:
        if math.isnan(self.difference):
            return self.error or "not compared, since logits are NaN or infinite"
        return f"largest difference {self.difference:.2g}, allowed {self.bound:.2g}"


def measure(
    model: Transformer,
    tokens: int = TOKENS,
    precisions: Iterable[str] = BOUNDS,
    conditions: Iterable[str] = tuple(CONDITIONS),
) -> Iterator[Deviation]:
    """Decode synthetic text in every condition and precision; `model`: in eval mode, on any device.

    Targets have `tokens` tokens, or as many as the encodings can hold. An exception is a failure of
    its condition, not an end: which conditions fail tells where the mistake is.
    """
    kind = model.output.weight.device.type
    for precision in precisions:
        for condition in conditions:
            difference, bound, error = math.nan, math.nan, None
            low = torch.autocast(kind, torch.bfloat16, enabled=precision == "bfloat16")
            try:
                with torch.inference_mode(), low:
                    pairs = compare(condition, model, tokens)
                    a, b = (torch.cat(side) for side in zip(*pairs, strict=True))
                    if a.isfinite().all() and b.isfinite().all():
                        difference = float((a - b).abs().max())
                        bound = BOUNDS[precision] * float(b.abs().max())
            except Exception as e:  # any mistake of an encoding, in any of its hooks
                error = where_raised(e)
            yield Deviation(condition, precision, difference, bound, error)
